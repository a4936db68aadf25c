"""A log whose files end at any byte, or have any byte changed: every intact record is delivered, and nothing else.

One daemon writes a topic and is killed. Each case is a copy of its folder under another topic name, with one file
truncated or changed; another daemon starts with all of them.
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

from tests.store.log.segments import Place, places
from tests.support.daemon import Daemon, wait_until
from tests.support.patience import WAIT_SECONDS

LOG = ("--topic-storage=log", "--max-bytes-per-file=300", "--log-retain-time=1h")
GOES_ON = b"PUB beats#ephemeral\n" + struct.pack(">i", 1) + b"x"


@dataclass
class Origin:
    """The topic's folder after a kill. The bodies of its messages are their offsets."""

    folder: Path
    frames: dict[str, list[Place]]      # of each segment's file
    finished: frozenset[int]

    @property
    def count(self) -> int:
        """All messages."""
        return max(frames[-1].next for frames in self.frames.values())

    @property
    def last(self) -> str:
        """The newest segment's file."""
        return max(self.frames)


@pytest.fixture
def origin(daemon, tmp_path) -> Origin:
    node = daemon(*LOG, data_path=tmp_path / "origin")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    publisher, count = node.connect(), 0
    for size in (1, 1, 3, 1, 1, 4, 1, 1, 2):
        publisher.pub("t", *(b"%d" % offset for offset in range(count, count + size)))
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
    frames = {path.name: places(path.read_bytes()) for path in folder.glob("*.log")}
    made = Origin(folder, frames, frozenset(finished))
    assert made.count == count and len(frames) > 1 and len(frames[made.last]) > 1
    return made


@dataclass
class Case:
    """One damaged copy. required: offsets that must be delivered."""

    what: str
    required: set[int]


class Copies:
    """A data path with many damaged copies of a topic."""

    def __init__(self, origin: Origin, path: Path):
        self.origin, self.path = origin, path
        self.cases: dict[str, Case] = {}
        path.mkdir()

    def add(self, name: str, change: Callable[[bytes], bytes], what: str, required: set[int]) -> None:
        """A copy in which one file is replaced."""
        topic = f"t{len(self.cases)}"
        folder = self.path / f"{topic}.log"
        shutil.copytree(self.origin.folder, folder)
        (folder / name).write_bytes(change((folder / name).read_bytes()))
        self.cases[topic] = Case(f"{name}: {what}", required - self.origin.finished)

    def start(self, daemon: Callable[..., Daemon]) -> Daemon:
        """A daemon on all of them, that treats them as after a kill: the machine has not rebooted meanwhile."""
        shutil.copy(self.origin.folder.parent / "nsqc.ids.dat", self.path)
        (self.path / "nsqd.dat").write_text(json.dumps({"topics": [
            {"name": topic, "paused": False, "channels": [{"name": "c", "paused": False}]} for topic in self.cases],
            "version": "1.3.0"}))
        return daemon(*LOG, "--max-rdy-count=100000", data_path=self.path)

    def check(self, node: Daemon) -> None:
        """Each copy delivers the required messages, and nothing that was not published."""
        for topic, case in self.cases.items():
            client = node.connect().sub(topic, "c", 1000)
            came, missing = set(), set(case.required)
            deadline = time.monotonic() + WAIT_SECONDS
            client.send(GOES_ON)
            unanswered = 1
            while missing or unanswered:    # the answer follows the last required message
                try:
                    frame = client.frame(0.5 if missing else None)
                except TimeoutError:
                    if time.monotonic() > deadline:
                        break
                    continue
                assert frame is not None, f"{case.what}: the connection has ended: {node.log[-1000:]}"
                if frame[0] == 2:
                    body = frame[1][26:]
                    assert body.isdigit() and int(body) < self.origin.count, f"{case.what}: {body!r} was never published"
                    came.add(int(body))
                    client.send(b"FIN " + frame[1][10:26] + b"\n")
                    if int(body) in missing:
                        missing.remove(int(body))
                        if not missing:
                            client.send(GOES_ON)
                            unanswered += 1
                else:
                    assert frame == (0, b"OK"), frame
                    unanswered -= 1
            assert not missing, f"{topic}, {case.what}: {sorted(missing)} are missing, {sorted(came)} came"
            client.close()


def within(frames: list[Place]) -> set[int]:
    """The offsets of frames."""
    return {offset for place in frames for offset in range(place.first, place.next)}


def tails(origin: Origin) -> Iterator[tuple[str, int, set[int]]]:
    """Each file that is appended to, each length, and the messages required then."""
    everything, frames = set(range(origin.count)), origin.frames[origin.last]
    for size in [*range(130), *range(2040, 2180), *range(4090, (origin.folder / origin.last).stat().st_size)]:
        yield origin.last, size, everything - within([place for place in frames if size < (place.end + 7) // 8 * 8])
    journal = max(path.name for path in origin.folder.glob("cursors.*"))
    for size in range((origin.folder / journal).stat().st_size):
        yield journal, size, everything


def test_torn_at_every_byte(daemon, origin, tmp_path):
    """As after a kill: none of it counts as damage. Slow: there is a topic for each byte."""
    copies = Copies(origin, tmp_path / "copies")
    for name, size, required in tails(origin):
        copies.add(name, lambda data, size=size: data[:size], f"{size} bytes", required)
    node = copies.start(daemon)
    copies.check(node)


def flips(origin: Origin) -> Iterator[tuple[str, int, set[int]]]:
    """Each file, each byte, and the messages required when it changes: only its own frame is lost."""
    everything = set(range(origin.count))
    for name, frames in origin.frames.items():
        for at in [*range(128), *range(2048, 2176)]:        # the header, and its copy
            yield name, at, everything
        for place in frames:
            for at in range(place.position, place.end):
                yield name, at, everything - within([place])
    for path in [origin.folder / "manifest", *origin.folder.glob("cursors.*")]:
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
    name = min(origin.frames)
    hit = origin.frames[name][1]
    copies.add(name, lambda data: flipped(data, hit.end - 1), "a body", set(range(origin.count)) - within([hit]))
    node = copies.start(daemon)
    copies.check(node)
    count = hit.next - hit.first
    assert json.loads(node.http("GET", "/topic/log?topic=t0")[1])["damaged"] == count
    assert node.stats("t0")["log"]["damaged"] == count
    wait_until(lambda: [line for line in node.log.splitlines() if "LOG(t0)" in line and "damaged" in line])
