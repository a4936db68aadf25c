"""Logs, stores and faults for tests of the bucket."""

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path

from nsqc.bucket.checkpoint import LogMap, Map
from nsqc.bucket.commit import Frames, LogNews, Records
from nsqc.bucket.reading import Range, read_frames
from nsqc.bucket.ship import News
from nsqc.bucket.store import Bucket, Entry, Exists, Missing, Store, Unclear
from nsqc.bucket.takeover import Journal, Owned, take_over
from nsqc.store.log.reading import LogBlock
from nsqc.store.message import GuidFactory
from tests.compiled.logs import Collector

START = 4096                    # of the frames in a segment
TIME = 1_700_000_000_000_000_000


def frames_of(bodies: list[bytes], salt: int, position: int, first: int) -> bytes:
    """Frames as a log writes them, one for each body."""
    guids, data = GuidFactory.make(1), b""
    for number, body in enumerate(bodies):
        collector = Collector(guids)
        collector.add(body, TIME + first + number)
        more, _ = collector.sealed(salt, position + len(data), first + number, 0)
        data += more
    return data


def read_range(node: Bucket, wanted: Range) -> Iterator[tuple[int, int, str, bytes, str | None]]:
    """(offset, publish time in ns since 1970, id, body, origin) of each message of a range."""
    for part in wanted.extents:
        for row in LogBlock(read_frames(node, part), part.length, part.salt, part.position, part.first, part.end):
            if wanted.first <= row[0] < wanted.end:
                yield row


class Log:
    """One log in memory: segments of bytes, and a journal that is text."""

    def __init__(self, log_id: int, topic: str) -> None:
        self.id, self.topic = log_id, topic
        self.segments: list[tuple[int, bytearray]] = [(random.getrandbits(64) or 1, bytearray())]
        self.parts: list[Frames] = []
        self.end = self.reserved = self.trimmed = self.journal = 0
        self.noted, self.noted_journal, self.state = 0, 0, b""

    def append(self, bodies: list[bytes], new_segment: bool = False) -> int:
        """Returns the bytes."""
        if new_segment:
            self.segments.append((random.getrandbits(64) or 1, bytearray()))
        salt, data = self.segments[-1]
        position = START + len(data)
        more = frames_of(bodies, salt, position, self.end)
        data += more
        self.parts.append(Frames(len(self.segments), salt, position, len(more), self.end, self.end + len(bodies)))
        self.end += len(bodies)
        return len(more)

    def news(self, most: int) -> LogNews | None:
        frames: list[Frames] = []
        while self.noted < len(self.parts) and (not frames or sum(part.length for part in frames) < most):
            frames.append(self.parts[self.noted])
            self.noted += 1
        cursors = []
        if self.journal > self.noted_journal:
            self.noted_journal = self.journal
            cursors.append(Records(self.journal % 3 == 0, self.journal, b"journal %d" % self.journal))
        if not frames and not cursors:
            return None
        return LogNews(self.id, self.topic, frames, cursors, 1 << 40, self.trimmed)

    def read(self, part: Frames) -> bytes:
        return bytes(self.segments[part.segment - 1][1][part.position - START:part.position - START + part.length])


class MemoryLogs:
    """What a daemon's logs are for a shipper."""

    def __init__(self, *logs: Log) -> None:
        self.logs = {log.id: log for log in logs}
        self.lock = threading.Lock()
        self.metadata: bytes | None = None
        self.whole: Map | None = None           # as resumed
        self.ends: dict[int, int] = {}          # offset up to which each log is in the bucket
        self.reason = ""
        self.changed = threading.Condition()

    def resume(self, whole: Map) -> None:
        self.whole = whole
        for log_id, log in self.logs.items():
            known = whole.logs.get(log_id, LogMap(""))
            end = known.frames[-1].end if known.frames else 0
            log.noted = sum(part.end <= end for part in log.parts)

    def note(self, most_bytes: int, most_logs: int) -> News:
        with self.lock:
            logs = [news for log in self.logs.values() if (news := log.news(most_bytes)) is not None]
            metadata, self.metadata = self.metadata, None
            more = any(log.noted < len(log.parts) for log in self.logs.values())
            data = {(news.id, part.salt, part.position): self.logs[news.id].read(part)
                    for news in logs for part in news.frames}
            return News(logs, metadata, more, data)

    def shipped(self, news: News) -> None:
        with self.changed:
            for log in news.logs:
                if log.frames:
                    self.ends[log.id] = log.frames[-1].end
            self.changed.notify_all()

    def kept(self, ends: list[tuple[int, int]]) -> None:
        pass

    def fenced(self, reason: str) -> None:
        with self.changed:
            self.reason = reason
            self.changed.notify_all()

    def wait(self, log: Log, seconds: float = 60.0) -> bool:
        """Until all of a log is in the bucket, or the process is fenced; returns which."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.reason or self.ends.get(log.id, 0) >= log.end, seconds)
            return not self.reason


class Collected:
    """What a bucket has of a node: the messages of each log, by offset, and its journal."""

    def __init__(self, owned: Owned) -> None:
        self.logs: dict[int, dict[int, bytes]] = {}
        self.journals = {log_id: [some.data for some in log.cursors] for log_id, log in owned.whole.logs.items()}
        self.topics = {log_id: log.topic for log_id, log in owned.whole.logs.items()}
        self.head = owned.whole.head
        for log_id, log in owned.whole.logs.items():
            found = self.logs[log_id] = {}
            for part in log.frames:
                data = read_frames(owned.bucket, part)
                for offset, _, _, body, _ in LogBlock(data, len(data), part.salt, part.position, part.first, part.end):
                    assert offset not in found
                    found[offset] = body


# ====================================================================== stores


class MemoryStore:
    """A perfect store."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.deleted: set[str] = set()
        self.lock = threading.Lock()

    def create(self, name: str, data: bytes) -> None:
        with self.lock:
            if name in self.objects:
                raise Exists(name)
            self.objects[name] = bytes(data)

    def get(self, name: str, most: int) -> bytes:
        with self.lock:
            if name not in self.objects:
                raise Missing(name)
            return self.objects[name]

    def get_part(self, name: str, at: int, length: int) -> bytes:
        return self.get(name, 1 << 40)[at:at + length]

    def delete(self, name: str) -> None:
        with self.lock:
            if self.objects.pop(name, None) is not None:
                self.deleted.add(name)

    def entries(self, prefix: str) -> Iterator[Entry]:
        with self.lock:
            return iter([Entry(name, len(data), 0.0) for name, data in self.objects.items() if name.startswith(prefix)])

    def folders(self, prefix: str) -> list[str]:
        with self.lock:
            return [*{name[len(prefix):].partition("/")[0] for name in self.objects
                      if name.startswith(prefix) and "/" in name[len(prefix):]}]


class FaultyStore:
    """Refuses, loses answers, and performs puts late, after it said that it did not answer."""

    def __init__(self, inner: Store, seed: int, rate: float = 0.3) -> None:
        self.inner, self.rate = inner, rate
        self.random = random.Random(seed)
        self.timers: list[threading.Timer] = []
        self.faults = 0

    def draws(self) -> float:
        """Which fault; 1: none."""
        drawn = self.random.random()
        self.faults += drawn < self.rate
        return drawn / self.rate if drawn < self.rate else 1.0

    def create(self, name: str, data: bytes) -> None:
        fault = self.draws()
        if fault < 0.3:
            raise Unclear(f"{name}: 503")
        if fault < 0.5:
            raise Exists(f"{name}: 409")
        if fault < 0.7:
            timer = threading.Timer(self.random.random() / 10, self.late, (name, data))
            timer.daemon = True
            timer.start()
            raise Unclear(f"{name}: no answer yet")
        self.inner.create(name, data)
        if fault < 1:
            raise Unclear(f"{name}: the answer was lost")

    def late(self, name: str, data: bytes) -> None:
        with contextlib.suppress(Exists):
            self.inner.create(name, data)

    def get(self, name: str, most: int) -> bytes:
        if self.draws() < 0.5:
            raise Unclear(f"{name}: 500")
        return self.inner.get(name, most)

    def get_part(self, name: str, at: int, length: int) -> bytes:
        if self.draws() < 0.5:
            raise Unclear(f"{name}: 500")
        return self.inner.get_part(name, at, length)

    def delete(self, name: str) -> None:
        if self.draws() < 0.5:
            raise Unclear(f"{name}: 500")
        self.inner.delete(name)

    def entries(self, prefix: str) -> Iterator[Entry]:
        if self.draws() < 0.5:
            raise Unclear(f"{prefix}: 500")
        return self.inner.entries(prefix)

    def folders(self, prefix: str) -> list[str]:
        return self.inner.folders(prefix)


class Machine:
    """A data path, and a way to a bucket."""

    def __init__(self, store: Store, folder: Path, name: str) -> None:
        self.root = Bucket(store, "memory://acme", patience=60)
        self.folder, self.name = folder / name, name
        self.folder.mkdir(exist_ok=True)

    def take_over(self, node: str = "nsqd-1", **options: object) -> Owned:
        options = {"has_files": False, "force": True, **options}
        return take_over(self.root, node, Journal.read(str(self.folder)), self.name, **options)
