"""Logs that a daemon wrote, shipped and read back: every message with its offset, time, id and body."""

import os
import struct
import threading
from pathlib import Path

from nsqc.bucket.checkpoint import LogMap, Map
from nsqc.bucket.commit import INLINE_BYTES, Frames, LogNews, Records
from nsqc.bucket.reading import NodeReader, read_range
from nsqc.bucket.ship import News, Shipper
from nsqc.bucket.store import open_bucket
from nsqc.bucket.takeover import Journal, Local, restore, take_over
from nsqc.store.log.names import FRAMES_AT, folders_in, segment_path
from nsqc.store.log.reading import LogBlock
from nsqc.store.log.recovery import read_folder
from tests.support.daemon import batch

HEAD = 64


class FolderLogs:
    """The logs in a data path that no daemon uses."""

    def __init__(self, data_path: Path) -> None:
        self.opened = {topic: (folder, read_folder(folder)) for topic, folder in folders_in(str(data_path)).items()}
        self.done = threading.Event()

    def resume(self, whole: Map) -> None:
        self.ends = {log_id: log.frames[-1].end for log_id, log in whole.logs.items() if log.frames}

    def note(self, most_bytes: int, most_logs: int) -> News:
        news = []
        for topic, (folder, log) in self.opened.items():
            frames = [part for segment in log.segments for part in extents(folder, segment)
                      if part.first >= self.ends.get(log.id, 0)]
            journal = b"".join(Path(folder, name).read_bytes() for name in sorted(os.listdir(folder)) if "cursors." in name)
            if frames:
                self.ends[log.id] = frames[-1].end
                news.append(LogNews(log.id, topic, frames, [Records(True, 1, journal)], log.resume_at))
        return News(news)

    def read(self, log_id: int, part: Frames) -> bytes:
        folder, log = next((folder, log) for folder, log in self.opened.values() if log.id == log_id)
        (first,) = (segment.first for segment in log.segments if segment.sequence == part.segment)
        with open(segment_path(folder, first), "rb") as file:
            return os.pread(file.fileno(), part.length, part.position)

    def shipped(self, news: News) -> None:
        self.done.set()

    def fenced(self, reason: str) -> None:
        raise AssertionError(reason)


def extents(folder: str, segment) -> list[Frames]:
    """The frames of a segment, cut into extents of up to INLINE_BYTES."""
    found: list[Frames] = []
    data = Path(segment_path(folder, segment.first)).read_bytes()[:segment.position]
    at = start = FRAMES_AT
    first = following = segment.first
    while at < len(data):
        payload, = struct.unpack_from(">I", data, at + 8)
        records, = struct.unpack_from(">I", data, at + 20)
        length = (HEAD + payload + 7) // 8 * 8
        if at + length - start > INLINE_BYTES:
            found.append(Frames(segment.sequence, segment.salt, start, at - start, first, following))
            start, first = at, following
        at, following = at + length, following + records
    if at > start:
        found.append(Frames(segment.sequence, segment.salt, start, at - start, first, following))
    return found


class Rows:
    """A sink of (offset, time, id, body)."""

    def __init__(self) -> None:
        self.topics: dict[str, list[tuple]] = {}
        self.journals: dict[str, bytes] = {}

    def begin(self, log_id: int, log: LogMap) -> Local:
        self.topic = log.topic
        self.topics[log.topic] = []
        return Local()

    def frames(self, log_id: int, part: Frames, data: bytes) -> None:
        block = LogBlock(data, len(data), part.salt, part.position, part.first, part.end)
        self.topics[self.topic] += [row[:4] for row in block]

    def cursors(self, log_id: int, cursors: Records) -> None:
        self.journals[self.topic] = cursors.data

    def ids(self, log_id: int, records: Records) -> None:
        raise AssertionError("the topic remembers none")

    def end(self, log_id: int) -> None:
        pass

    def finish(self, head) -> None:
        pass


def test_a_node_is_restored_from_a_folder(daemon, tmp_path):
    node = daemon("--topic-storage=log", "--max-bytes-per-file=3000000", "--mem-queue-size=0")
    node.post("/topic/create?topic=orders")
    node.post("/channel/create?topic=orders&channel=billing")
    bodies = [b"order %d " % number + os.urandom(number % 3000) for number in range(8000)]
    for at in range(0, len(bodies), 200):
        node.post("/mpub?topic=orders&binary=true", batch(*bodies[at:at + 200]))
    node.publish("events", b"one", b"two")
    node.post("/pub?topic=events&defer=3600000", b"later")
    assert node.stop() == 0
    logs = FolderLogs(node.data_path)
    assert len(logs.opened["orders"][1].segments) > 3

    root = open_bucket(f"file://{tmp_path}/bucket")
    owned = take_over(root, "nsqd-1", Journal.read(str(node.data_path)), "one", has_files=True)
    shipper = Shipper(owned, logs)
    shipper.start()
    assert logs.done.wait(60)
    assert shipper.stop(60)

    second = tmp_path / "second"
    second.mkdir()
    rows = Rows()
    restore(take_over(root, "nsqd-1", Journal.read(str(second)), "two", has_files=False), rows)
    assert [row[3] for row in rows.topics["orders"]] == bodies
    assert [row[0] for row in rows.topics["orders"]] == [*range(len(bodies))]
    assert [row[3] for row in rows.topics["events"]] == [b"one", b"two", b"later"]
    assert len({row[2] for row in rows.topics["orders"]}) == len(bodies)
    assert rows.journals["orders"].count(b"billing")

    reader = NodeReader(root, "nsqd-1")
    ((log_id, _),) = reader.logs("orders")
    ranges = reader.plan(log_id, 100, 7000, 1000)
    assert [part.first for part in ranges[1:]] == [part.end for part in ranges[:-1]]
    read = [row[:4] for part in ranges for row in read_range(root.below("nsqd-1"), part)]
    assert read == rows.topics["orders"][100:7000]
