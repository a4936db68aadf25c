"""A log whose files end at any byte, or have any byte changed: every intact record is delivered, and none that is not one.

One daemon writes a topic and is killed. Each case is a copy of its folder under a topic name of its own, with one file cut
or changed; another daemon starts with all of them.
"""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, wait_until
from tests.support.patience import WAIT_SECONDS

LOG = ("--topic-storage=log", "--max-bytes-per-file=300", "--log-retain-time=1h")
INDEX_HEAD, ENTRY = 32, 16
GOES_ON = b"PUB beats#ephemeral\n" + struct.pack(">i", 1) + b"x"


@dataclass
class Origin:
    """The topic's folder, as a kill has left it. Its messages have their offsets as bodies."""

    folder: Path
    ends: dict[str, list[int]]          # of each data file: where its records end
    firsts: dict[str, int]              # of each data file: its first offset
    batches: list[range]                # offsets that were published together
    finished: frozenset[int]

    @property
    def count(self) -> int:
        """All messages."""
        return sum(map(len, self.ends.values()))

    @property
    def last(self) -> str:
        """The last data file."""
        return max(self.ends)

    def batch(self, offset: int) -> range:
        """What was published together with a message."""
        return next(batch for batch in self.batches if offset in batch)


@pytest.fixture
def origin(daemon, tmp_path) -> Origin:
    node = daemon(*LOG, data_path=tmp_path / "origin")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    publisher, batches, count = node.connect(), [], 0
    for size in (1, 1, 3, 1, 1, 4, 1, 1, 2):
        publisher.pub("t", *(b"%d" % offset for offset in range(count, count + size)))
        batches.append(range(count, count + size))
        count += size
    consumer = node.connect().sub("t", "c", 8)
    finished = set()
    for message in consumer.messages(8):
        if int(message.body) % 3 == 0:
            consumer.fin(message)
            finished.add(int(message.body))
        elif int(message.body) % 3 == 1:
            consumer.send(b"REQ " + message.id + b" 0\n")
    consumer.command("RDY 0")
    consumer.send(GOES_ON)
    while consumer.frame() != (0, b"OK"):
        pass
    wait_until(lambda: node.channel("t", "c")["requeue_count"] >= 2)
    node.kill()
    folder = node.data_path / "t.log"
    ends: dict[str, list[int]] = {}
    for path in folder.glob("*.dat"):
        data, at, ends[path.name] = path.read_bytes(), 0, []
        while at < len(data):
            at += 4 + struct.unpack_from(">i", data, at)[0]
            ends[path.name].append(at)
        assert at == len(data)
    made = Origin(folder, ends, {name: int(name.removesuffix(".dat")) for name in ends}, batches, frozenset(finished))
    assert made.count == count and len(ends) > 1
    return made


@dataclass
class Case:
    """One damaged copy. required: offsets that have to come."""

    what: str
    required: set[int]


class Copies:
    """A data path with many damaged copies of a topic."""

    def __init__(self, origin: Origin, path: Path):
        self.origin, self.path = origin, path
        self.cases: dict[str, Case] = {}
        path.mkdir()

    def add(self, name: str, change: Callable[[bytes], bytes], what: str, required: set[int]) -> None:
        """A copy in which one file is another."""
        topic = f"t{len(self.cases)}"
        folder = self.path / f"{topic}.log"
        shutil.copytree(self.origin.folder, folder)
        (folder / name).write_bytes(change((folder / name).read_bytes()))
        self.cases[topic] = Case(f"{name}: {what}", required - self.origin.finished)

    def start(self, daemon: Callable[..., Daemon]) -> Daemon:
        """A daemon with all of them."""
        (self.path / "nsqd.dat").write_text(json.dumps({"topics": [
            {"name": topic, "paused": False, "channels": [{"name": "c", "paused": False}]} for topic in self.cases],
            "version": "1.3.0"}))
        return daemon(*LOG, "--max-rdy-count=100000", data_path=self.path)

    def check(self, node: Daemon) -> None:
        """Each copy delivers what is required, and nothing that was not published."""
        for topic, case in self.cases.items():
            client = node.connect().sub(topic, "c", 1000)
            came, missing = set(), set(case.required)
            deadline = time.monotonic() + WAIT_SECONDS
            client.send(GOES_ON)
            while True:
                try:
                    frame = client.frame(0.5 if missing else 0.02)
                except TimeoutError:
                    if not missing or time.monotonic() > deadline:
                        break
                    continue
                assert frame is not None, f"{case.what}: the connection has ended: {node.log[-1000:]}"
                if frame[0] == 2:
                    body = frame[1][26:]
                    assert body.isdigit() and int(body) < self.origin.count, f"{case.what}: {body!r} was never published"
                    came.add(int(body))
                    missing.discard(int(body))
                    client.send(b"FIN " + frame[1][10:26] + b"\n")
                else:
                    assert frame == (0, b"OK"), frame
                    if not missing:
                        break
            assert not missing, f"{topic}, {case.what}: {sorted(missing)} are missing, {sorted(came)} came"
            client.close()


def whole(origin: Origin, name: str, records: int) -> set[int]:
    """Offsets that are left when a data file ends behind so many records: those of whole batches, and all of other files."""
    first = origin.firsts[name]
    gone = set(range(first + records, first + len(origin.ends[name])))
    return {offset for offset in range(origin.count) if not gone & set(origin.batch(offset))}


def tails(origin: Origin) -> Iterator[tuple[str, int, set[int]]]:
    """Each file that is appended to, each length, and what is required then."""
    data, index = origin.last, origin.last.replace(".dat", ".idx")
    for size in range((origin.folder / data).stat().st_size):
        yield data, size, whole(origin, data, sum(end <= size for end in origin.ends[data]))
    for size in range((origin.folder / index).stat().st_size):
        yield index, size, whole(origin, data, max(0, size - INDEX_HEAD) // ENTRY)
    journal = max(path.name for path in origin.folder.glob("cursors.*.journal"))
    for size in range((origin.folder / journal).stat().st_size):
        yield journal, size, set(range(origin.count))


def test_torn_at_every_byte(daemon, origin, tmp_path):
    """As after a kill: nothing of it is damage. Slow: there is a topic for each byte."""
    copies = Copies(origin, tmp_path / "copies")
    for name, size, required in tails(origin):
        copies.add(name, lambda data, size=size: data[:size], f"{size} bytes", required)
    node = copies.start(daemon)
    copies.check(node)


def flips(origin: Origin) -> Iterator[tuple[str, int, set[int]]]:
    """Each file, each byte, and what is required when it is changed."""
    everything = set(range(origin.count))
    for data, ends in origin.ends.items():
        first = origin.firsts[data]
        for at in range(ends[-1]):
            hit = first + sum(end <= at for end in ends)
            at_end = data == origin.last and hit in origin.batches[-1]
            # The rest of a batch is delivered, but for the last one: that looks like one that was never completed.
            yield data, at, everything - (set(origin.batches[-1]) if at_end else {hit})
        for at in range(INDEX_HEAD + ENTRY * len(ends)):
            hit = first + max(0, at - INDEX_HEAD) // ENTRY
            at_end = data == origin.last and at >= INDEX_HEAD and hit in origin.batches[-1]
            yield data.replace(".dat", ".idx"), at, everything - (set(origin.batches[-1]) if at_end else set())
    for path in origin.folder.glob("cursors.*"):
        for at in range(path.stat().st_size):
            yield path.name, at, everything


def flipped(data: bytes, at: int) -> bytes:
    """With one bit changed."""
    return data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1:]


@pytest.mark.parametrize("part", [0, 1])
def test_a_changed_bit_in_every_byte(daemon, origin, tmp_path, part):
    """Slow: there is a topic for each byte."""
    copies = Copies(origin, tmp_path / "copies")
    for number, (name, at, required) in enumerate(flips(origin)):
        if number % 2 == part:
            copies.add(name, lambda data, at=at: flipped(data, at), f"bit {at % 8} of byte {at}", required)
    node = copies.start(daemon)
    copies.check(node)


def test_damage_is_reported(daemon, origin, tmp_path):
    """In a record that is not the last: in the log, in /stats and in /topic/log."""
    copies = Copies(origin, tmp_path / "copies")
    data = min(origin.ends)
    copies.add(data, lambda data: flipped(data, origin.ends["00000000000000000000.dat"][1] - 1), "a body",
               set(range(origin.count)) - {1})
    node = copies.start(daemon)
    copies.check(node)
    assert json.loads(node.http("GET", "/topic/log?topic=t0")[1])["damaged"] == 1
    assert node.stats("t0")["log"]["damaged"] == 1
    wait_until(lambda: [line for line in node.log.splitlines()
                        if "LOG(t0)" in line and "1 damaged records from offset 1 on" in line])


@pytest.mark.parametrize("behind", [b"", b"x" * 200], ids=["last", "not-last"])
def test_damage_at_the_end_of_a_batch_costs_one_message(daemon, tmp_path, behind):
    """Also where the batch ends a segment, and where it is the last thing in the log."""
    node = daemon(*LOG, data_path=tmp_path / "node")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    client = node.connect()
    client.pub("t", *(b"%d" % number for number in range(8)))
    if behind:
        client.pub("t", behind)
    node.kill()
    path = min((node.data_path / "t.log").glob("*.dat"))
    path.write_bytes(flipped(path.read_bytes(), path.stat().st_size - 1))
    for _ in range(2):
        node.start()
        assert [node.http("GET", f"/topic/read?topic=t&offset={offset}&max_messages=1")[0] for offset in (0, 6)] == [200, 200]
        node.kill()
    node.start()
    node.post("/pub?topic=t", b"new")
    consumer = node.connect().sub("t", "c", 100)
    wanted = [b"%d" % number for number in range(7)] + [behind] * bool(behind) + [b"new"]
    assert [message.body for message in consumer.messages(len(wanted), finish=True)] == wanted
    wait_until(lambda: node.stats("t")["log"]["damaged"] == 1)
    held = json.loads(node.http("GET", "/topic/log?topic=t")[1])
    assert (held["next_offset"], held["damaged"], held["channels"][0]["lag_messages"]) == (9 + bool(behind), 1, 0)
    assert node.stop() == 0
