"""Power failures of a log-backed topic.

A daemon publishes under the shim and is killed. Then the disk is rebuilt as it could have been at moments of the trace,
and a daemon that starts on it must deliver the messages acknowledged by then. With --log-sync=fsync none may be
missing, whatever happened to unsynced data.

Slow: disks are rebuilt, and daemons start on them.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nsqc.store.log.manager import Looks
from tests.store.log.segments import body_of, read_bodies, write_log
from tests.support.counting import consume, consume_all, numbered
from tests.support.daemon import Daemon, wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.power.disk import Chance, Disk, Names, Some, other_boot
from tests.support.power.trace import Trace
from tests.support.publishing import Books, Publishers

SEED = 24
MOST_PHASES = 50        # more than three only on a busy machine
SECONDS = 0.5               # of publishing
MOMENTS = 4                 # of power failure, for each run
SEGMENT = "--max-bytes-per-file=20000"      # so that files are created continuously
LOG = ("--topic-storage=log", SEGMENT)
JUMP = 1 << 40              # offsets reserved at once: numbering continues after them


@pytest.fixture
def traced(daemon, tmp_path):
    """Starts a daemon under the shim: node, trace, and books dated by positions in the trace."""
    traces = []

    def start(*flags: str) -> tuple[Daemon, Trace, Books]:
        data = tmp_path / "traced"
        data.mkdir()
        traces.append(Trace(tmp_path / "trace", data))
        node = daemon(*flags, data_path=data, env=traces[0].environment())
        return node, traces[0], Books(lambda: traces[0].position)

    yield start
    for trace in traces:
        trace.close()


def make_channels(node: Daemon, *channels: str) -> None:
    node.post("/topic/create?topic=t")
    for channel in channels:
        node.post(f"/channel/create?topic=t&channel={channel}")


def moments(trace: Trace, after: int, count: int, seed: int) -> list[int]:
    """Positions after some of the records, the last one among them."""
    ends = [event.end for event in trace.events() if event.end >= after]
    return sorted(random.Random(seed).sample(ends, min(count, len(ends)) - 1)) + [ends[-1]]


def disks(trace: Trace, positions: list[int], folder: Path, seed: int) -> Iterator[tuple[int, Path, Chance]]:
    """The disk at each of the positions, alternately without unsynced data, with its names, and with some of it."""
    disk, played = Disk(), 0
    events = list(trace.events())
    for number, position in enumerate(positions):
        disk.play(event for event in events if played < event.end <= position)
        played = position
        chance = (Chance(), Names(), Some(seed + number))[number % 3]
        path = folder / f"disk{number}"
        disk.write(path, chance)
        yield position, path, chance


def described(node: Daemon) -> dict[str, object]:
    """/topic/log; for a topic not in nsqd.dat when the power failed, the answer of an empty one."""
    status, body = node.http("GET", "/topic/log?topic=t")
    assert status in (200, 404), body
    return json.loads(body) if status == 200 else {"first_offset": 0, "next_offset": 0, "id": None}


def log_of(node: Daemon) -> dict[bytes, int]:
    """Offsets by body, of all readable messages."""
    known = described(node)
    at, offsets = known["first_offset"], {}
    while at < known["next_offset"]:
        request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}/topic/read?topic=t&offset={at}",
                                         headers={"Accept": "application/x-ndjson"})
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            lines = [json.loads(line) for line in answer.read().splitlines()]
            assert int(answer.headers["X-NSQ-Next-Offset"]) > at
            at = int(answer.headers["X-NSQ-Next-Offset"])
        for line in lines:
            assert line["offset"] not in offsets.values()
            offsets[line["body"].encode()] = line["offset"]
    return offsets


def test_starts_after_a_power_failure_do_not_forget_where_numbering_continues(daemon):
    node = daemon(*LOG)
    for number in range(3):
        node.post("/pub?topic=t", b"%d" % number)
    node.kill()
    other_boot(node.data_path)
    os.truncate(node.data_path / "t.log" / f"{0:020}.log", 0)       # its name was synced, its data was not
    node.start()
    assert node.stop() == 0
    node.start()
    node.kill()
    node.start()
    node.post("/pub?topic=t", b"later")
    assert log_of(node) == {b"later": JUMP}
    assert node.stop() == 0
    node.start()
    assert log_of(node) == {b"later": JUMP}


def test_a_reader_passes_segments_that_are_lost(daemon, tmp_path):
    """Names were synced, headers were not. The manifest knows where the newest one began."""
    data = tmp_path / "node"
    data.mkdir()
    (data / "nsqd.dat").write_text('{"topics":[{"name":"t","paused":false,"channels":null}],"version":"1.3.0"}')
    for segment in write_log(data / "t.log", [(0, 5), (5, 5), (10, 5)], clean=False)[1:]:
        os.truncate(segment.path, 0)
    node = daemon(*LOG, data_path=data)
    assert described(node)["next_offset"] == JUMP
    assert log_of(node) == {body_of(offset): offset for offset in range(5)}


def test_the_end_that_is_reported_never_falls(daemon):
    """Not even while nothing is published: a reader that had got further is never past the end."""
    node = daemon(*LOG)
    for number in range(3):
        node.post("/pub?topic=t", b"%d" % number)
    node.post("/channel/create?topic=t&channel=c")
    assert described(node)["next_offset"] == 3
    node.kill()
    other_boot(node.data_path)
    os.truncate(node.data_path / "t.log" / f"{0:020}.log", 4096 + 72)       # the first message
    for _ in range(2):
        node.start()
        known = described(node)
        assert known["next_offset"] == JUMP
        assert known["last_time"]
        for offset in (1, 3, JUMP):
            status, body = node.http("GET", f"/topic/read?topic=t&offset={offset}")
            assert (status, body) == (200, b"")
            assert node.http("POST", f"/channel/seek?topic=t&channel=c&to={offset}")[0] == 200
        assert described(node)["channels"][0]["lag_messages"] == node.channel("t", "c")["depth"] == 0
        status, body = node.http("GET", f"/topic/read?topic=t&offset={JUMP + 1}")
        assert (status, json.loads(body)["next_offset"]) == (416, JUMP)
        assert node.http("POST", f"/channel/seek?topic=t&channel=c&to={JUMP + 1}")[0] == 416
        assert re.search(rb'topic_log_next_offset{topic="t"} (\S+)', node.http("GET", "/metrics")[1])[1] == b"%d" % JUMP
        assert node.stop() == 0
    node.start()
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(node.http, "GET", f"/topic/read?topic=t&offset={offset}&wait_ms=20000")
                   for offset in (3, JUMP)]
        time.sleep(0.1)
        node.post("/pub?topic=t", b"later")
        assert [b"later" in waits.result()[1] for waits in waiting] == [True, True]
    assert described(node)["next_offset"] == JUMP + 1
    assert consume_all(node, "t", "c", {b"later"}) == {b"later"}


def torn_segment(folder: Path, blank: bool) -> None:
    """Zeroes the end of the first segment, as a power failure does to unsynced data."""
    segment = min(folder.glob("*.log"))
    data = segment.read_bytes()[:-160]
    segment.write_bytes(data + bytes(160) if blank else data)


@pytest.mark.parametrize("blank", [False, True])
def test_a_batch_that_was_torn_is_the_same_at_each_start(daemon, blank):
    """It was not the last in the log, so its remaining frames count, for readers and channels."""
    node = daemon(*LOG, "--log-retain-time=1h")
    make_channels(node, "one", "two", "three")
    client = node.connect()
    client.pub("t", *(b"%03d-" % number + b"x" * 1000 for number in range(100)))      # two frames, of 65 and 35
    client.pub("t", *(b"%03d-" % number + b"x" * 1000 for number in range(100, 160)))
    assert len(list((node.data_path / "t.log").glob("*.log"))) == 2
    node.kill()
    other_boot(node.data_path)
    torn_segment(node.data_path / "t.log", blank)
    left = {number: number for number in range(160) if not 65 <= number < 100}
    node.start()
    known = described(node)
    for channel in ("one", "two", "three"):
        assert {int(body[:3]): offset for body, offset in log_of(node).items()} == left
        assert {int(body[:3]) for body in consume_all(node, "t", channel, set(log_of(node)))} == left.keys()
        assert (described(node)["damaged"], described(node)["missing"]) == (35, 0)
        assert described(node)["next_offset"] == known["next_offset"]
        assert node.stop() == 0
        node.start()


def test_half_a_frame_of_the_journal_hides_none_behind_it(daemon):
    """A kill during a write leaves the beginning of a frame, whose head says a length; the next run writes on there."""
    node = daemon(*LOG)
    make_channels(node, "c")
    node.publish("t", *numbered(60))
    journal = node.data_path / "t.log/cursors.000001"
    finished = set()
    for _ in range(2):
        client = node.connect().sub("t", "c", rdy=1)
        for _ in range(20):
            size = journal.stat().st_size if journal.exists() else 0
            finished |= {message.body for message in client.messages(1, finish=True)}
            wait_until(lambda size=size: journal.exists() and journal.stat().st_size > size)
        node.kill()
        data = journal.read_bytes()
        journal.write_bytes(data[:data.rindex(b"nqFR") + 72])
        node.start()
    assert "damaged" not in node.log
    again = finished & {message.body for message in node.connect().sub("t", "c", rdy=100).messages(60 - len(finished))}
    assert len(again) <= 2, "only the two frames that were cut may be missing"


def test_nothing_acknowledged_is_lost_with_fsync(daemon, traced, tmp_path):
    node, trace, books = traced(*LOG, "--log-sync=fsync")
    make_channels(node, "kept", "read")
    begin = trace.position
    with Publishers(node, books, "t", seed=SEED):
        finished = consume(node, "t", "read", set(), seconds=SECONDS).keys()
        log_id = described(node)["id"]
        node.kill()
    assert log_id
    assert not books.refused
    where: dict[bytes, int] = {}
    for position, path, _ in disks(trace, moments(trace, begin, MOMENTS, SEED), tmp_path, SEED):
        other_boot(path)
        after = daemon(*LOG, "--log-sync=fsync", data_path=path)
        required = {body for batch in books.until(position) for body in batch.bodies}
        offsets = log_of(after)
        assert offsets.keys() <= books.sent.keys()
        assert required <= offsets.keys(), f"{path.name}: {len(required - offsets.keys())} cannot be read"
        assert described(after)["id"] == log_id or not required
        for body in required:
            assert where.setdefault(body, offsets[body]) == offsets[body], "a message has another offset"
        after.connect().pub("t", b"later-1-0/1-")
        assert log_of(after)[b"later-1-0/1-"] > max(offsets.values(), default=-1)
        there = consume_all(after, "t", "kept", required | {b"later-1-0/1-"})
        assert required <= there, f"{path.name}: {len(required - there)} of {len(required)} are missing"
        books.check(there - {b"later-1-0/1-"})
        there = consume_all(after, "t", "read", required - finished | {b"later-1-0/1-"})
        assert required - finished <= there, f"{path.name}: {len(required - finished - there)} are missing"
        books.check(there - {b"later-1-0/1-"}, finished)
        after.close()


@pytest.mark.long
def test_batches_are_whole_with_fsync_whatever_the_disk_has_made_of_them(traced, tmp_path):
    """Many disks, without a daemon for each: only recovery of the folder is checked. Slow: hundreds of disks are
    rebuilt and read."""
    node, trace, books = traced(*LOG, "--log-sync=fsync")
    make_channels(node)
    begin = trace.position
    with Publishers(node, books, "t", seed=SEED):
        time.sleep(SECONDS)
        node.kill()
    disk, played, events = Disk(), 0, list(trace.events())
    for number, position in enumerate(moments(trace, begin, 300, SEED)):
        disk.play(event for event in events if played < event.end <= position)
        played, path = position, tmp_path / f"disk{number}"
        disk.write(path, Some(number))
        folder = str(path / "t.log")
        if os.path.isdir(folder):
            there = set(read_bodies(folder, Looks([folder], True).take(folder)).values())
            assert {body for batch in books.until(position) for body in batch.bodies} <= there
            books.check(there)
        shutil.rmtree(path)


def test_with_write_only_what_was_not_synced_is_lost_and_offsets_never_repeat(daemon, traced, tmp_path):
    node, trace, books = traced(*LOG, "--log-sync=write")
    make_channels(node, "kept")
    with Publishers(node, books, "t", seed=SEED, name="stopped"):
        time.sleep(SECONDS / 2)
    assert node.stop() == 0
    node.start()
    begin = trace.position
    with Publishers(node, books, "t", seed=SEED + 1):
        time.sleep(SECONDS)
        node.kill()
    positions = moments(trace, begin, MOMENTS, SEED + 1)
    whole = Disk()
    whole.play(trace.events())
    node.start()
    before = log_of(node)
    node.kill()
    assert {body for batch in books.acknowledged for body in batch.bodies} <= before.keys()
    for position, path, chance in disks(trace, positions, tmp_path, SEED):
        other_boot(path)
        after = daemon(*LOG, "--log-sync=write", data_path=path)
        acknowledged = {body for batch in books.until(position) for body in batch.bodies}
        used = max((before[body] for body in acknowledged), default=-1)
        assert described(after)["next_offset"] > used, "the end has fallen"
        offsets = log_of(after)
        assert offsets.keys() <= books.sent.keys()
        still = sorted(acknowledged & offsets.keys(), key=offsets.__getitem__)
        assert still == sorted(still, key=before.__getitem__), "the order is another"
        if not isinstance(chance, Some):
            # With holes in a segment, the number of lost messages is unknown.
            assert [offsets[body] for body in still] == [before[body] for body in still]
        client = after.connect()
        client.pub("t", b"later-1-0/1-")
        assert log_of(after)[b"later-1-0/1-"] > max(used, max(offsets.values(), default=-1)), "an offset repeats"
        there = consume_all(after, "t", "kept", {b"later-1-0/1-"} | set(offsets))
        # Any part of an unsynced batch may be gone.
        assert there - {b"later-1-0/1-"} <= books.sent.keys()
        assert offsets.keys() <= there
        after.close()


def test_offsets_do_not_repeat_after_a_stop_and_a_start(daemon, traced, tmp_path):
    """What was written since the start is not on disk; what the stop recorded is."""
    node, trace, _ = traced("--topic-storage=log", "--log-sync=write", "--sync-timeout=1h")
    make_channels(node, "kept")
    for body in (b"0", b"1"):
        node.post("/pub?topic=t", body)
    assert node.stop() == 0
    node.start()
    for body in (b"2", b"3"):
        node.post("/pub?topic=t", body)
    node.kill()
    end = list(trace.events())[-1].end
    for _, path, _ in disks(trace, [end] * 3, tmp_path, SEED):
        other_boot(path)
        after = daemon("--topic-storage=log", data_path=path)
        assert {b"0": 0, b"1": 1}.items() <= log_of(after).items()
        after.post("/pub?topic=t", b"later")
        assert log_of(after)[b"later"] > 3
        assert {b"0", b"1", b"later"} <= consume_all(after, "t", "kept", {b"0", b"1", b"later"})
        after.close()


def by_turns(node: Daemon, books: Books, seed: int) -> list[tuple[int, int]]:
    """Changes the rule between write and fsync. For each message published under fsync: the positions before it was
    sent, and after its OK."""
    promises, chosen = [], random.Random(seed)
    for _ in range(4):
        for sync in ("write", "fsync"):
            status, text = node.http("PUT", "/topic/rules?topic=t", json.dumps({"sync": sync}).encode())
            assert status == 200, text
            if sync == "write":
                time.sleep(chosen.random() * 0.1)
        begin = books.clock()
        node.post("/pub?topic=t", b"sure-%d" % begin)
        promises.append((begin, books.clock()))
    return promises


def test_an_ok_under_fsync_speaks_for_everything_before_it(daemon, traced, tmp_path):
    """While the rule changes, over a kill. Slow: disks are rebuilt, and a daemon starts on each."""
    node, trace, books = traced(*LOG, "--log-sync=write", "--sync-timeout=1h", "--sync-every=1000000")
    make_channels(node, "kept")
    promises = []
    for run in range(2):
        with Publishers(node, books, "t", ("pub", "mpub", "dpub", "http"), seed=SEED + run, name=f"run{run}"):
            promises += by_turns(node, books, SEED + run)
            time.sleep(0.05)
            # At a record: the trace of the next run would not know a file that was created and not recorded.
            trace.kill_with(1)
            node.process.wait(WAIT_SECONDS)
        if run == 0:
            node.start()
    ends = [behind for _, behind in promises]
    for position, path, _ in disks(trace, sorted(random.Random(SEED).sample(ends[:-1], 1) + [ends[-1]]), tmp_path, SEED):
        other_boot(path)
        after = daemon(*LOG, data_path=path)
        before = max(begin for begin, behind in promises if behind <= position)
        required = {body for batch in books.until(before) for body in batch.bodies}
        required |= {b"sure-%d" % begin for begin, behind in promises if behind <= position}
        offsets = log_of(after)
        assert required <= offsets.keys(), f"{path.name}: {len(required - offsets.keys())} of {len(required)} are gone"
        after.close()


@pytest.mark.long
def test_segments_that_go_while_messages_come(daemon, traced, tmp_path):
    """Retention removes finished messages. A power failure during that loses no unfinished one."""
    node, trace, books = traced(*LOG, "--log-sync=fsync")
    make_channels(node, "c")
    begin = trace.position
    finished: list[tuple[int, set[bytes]]] = []     # in a phase that began at this position

    def removed() -> int:
        return sum(event.kind == "unlink" and event.path.endswith(".log") for event in trace.events())

    with Publishers(node, books, "t", ("pub", "mpub", "http"), seed=SEED):
        while len(finished) < 3 or (removed() < 4 and len(finished) < MOST_PHASES):
            time.sleep(0.1)
            phase = trace.position
            finished.append((phase, set(consume(node, "t", "c", set(), seconds=0.3))))
        node.kill()
    assert removed() > 3
    for position, path, _ in disks(trace, moments(trace, begin, 3, SEED + 2), tmp_path, SEED):
        other_boot(path)
        after = daemon(*LOG, "--log-sync=fsync", data_path=path)
        required = {body for batch in books.until(position) for body in batch.bodies}
        required -= {body for phase, bodies in finished if phase < position for body in bodies}
        assert not described(after).get("missing"), "what retention has removed seems lost"
        there = consume_all(after, "t", "c", required)
        assert required <= there, f"{path.name}: {len(required - there)} of {len(required)} are missing"
        assert there <= books.sent.keys()
        after.close()
