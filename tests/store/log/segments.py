"""Writes segments and manifests as docs/ondisk.md describes them, and reads them as a start does."""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from nsqc.store.log.names import segment_path
from nsqc.store.log.reading import records
from nsqc.store.log.recovery import Opened
from tests.support.crc32c import crc32c

BASE = 1_700_000_000_000_000_000
STEP = 1_000_000_000  # from one message to the next
FRAMES_AT = 4096
COPY_AT = 2048  # of the header's second copy
HEAD = 64  # size of a frame's head
LOG_ID = 0xFF
MORE, DELAYS, IDS = 1, 2, 8
ID_KEY = 1, 2


class Place(NamedTuple):
    """A frame in its file."""

    position: int
    end: int  # of its payload; zeros follow up to a multiple of 8
    first: int  # offset of its first record
    next: int  # after its last


class Written(NamedTuple):
    """A segment."""

    first: int
    end: int
    path: Path
    sequence: int
    salt: int
    position: int  # where its frames end
    frames: list[Place]
    before: int  # records in all segments before it
    due: int  # the latest due time; 0: there is none

    @property
    def bounds(self) -> tuple[int, int, int, int]:
        """The segment as TopicLog.segments has it."""
        return self.first, self.end, self.position, self.salt


def body_of(offset: int) -> bytes:
    """Bodies of different lengths."""
    return b"message %d " % offset * (1 + offset % 5)


def record(offset: int, attempts: int = 0) -> bytes:
    """A record as files of disk queues have it; its id is its offset, as with one record per frame."""
    body = body_of(offset)
    return struct.pack(">iqH", 26 + len(body), BASE + offset * STEP, attempts) + b"%016x" % offset + body


def sealed(data: bytes) -> bytes:
    """Appends its checksum."""
    return data + struct.pack(">I", crc32c(data))


def frame(salt: int, position: int, first: int, count: int, delays: Mapping[int, int], flags: int, synced: int,
          ids: Mapping[int, bytes] | None = None) -> bytes:
    """Without padding. The time is that of its first record."""
    payload = b"".join(struct.pack(">I", len(body)) + body for body in map(body_of, range(first, first + count)))
    due = {offset: when for offset, when in delays.items() if first <= offset < first + count}
    payload += b"".join(struct.pack(">IqI", offset - first, when, 1000) for offset, when in due.items())
    hashes = [hash for offset, hash in sorted((ids or {}).items()) if first <= offset < first + count]
    payload += b"".join(hashes)
    head = struct.pack(">IIHHIHHIqqqq", len(payload), crc32c(payload), flags | DELAYS * bool(due) | IDS * bool(hashes), 0,
                       count, len(due), len(hashes), 0, first, BASE + first * STEP, first, synced)
    return struct.pack(">II", 0x6E714652, crc32c(struct.pack(">Qq", salt, position) + head)) + head + payload


def header(log_id: int, sequence: int, first: int, salt: int, before: Written | None) -> bytes:
    """The block before the frames."""
    last = (0, 0, 0, 0, 0, 0, 0)
    if before is not None:
        records = before.before + before.end - before.first
        last = (before.salt, before.position, before.end, records, before.due, BASE + (before.end - 1) * STEP, 0)
    head = struct.pack(">8sIIQqqQqQqqqqqq", b"NSQCLOG\n", 2, 0, log_id, sequence, first, salt, BASE + first * STEP, *last)
    return (sealed(head.ljust(124, b"\0")).ljust(COPY_AT, b"\0") * 2)


def index(salt: int, entries: Iterable[tuple[int, int, int]]) -> bytes:
    """The index after the frames of a sealed segment. entries: first offset, position, time."""
    found = [struct.pack(">qqq", *entry) for entry in entries]
    return sealed(b"".join(found) + struct.pack(">QIq", salt, 0x6E714958, len(found)))


def write_manifest(folder: Path, newest: Written, clean: bool = True, resume: int = 0, reserved: int = 1 << 40) -> None:
    """clean: with the end of the newest segment, as a stop leaves it."""
    end = (newest.path.stat().st_size, newest.position, newest.end, newest.due,
           BASE + (newest.end - 1) * STEP) if clean else (0, 0, 0, 0, 0)
    data = struct.pack(">8sIIQqqQqqqqqqqQQ", b"NSQCMAN\n", 2, 0, LOG_ID, newest.sequence, newest.first, newest.salt, reserved,
                       resume, *end, *ID_KEY)
    (folder / "manifest").write_bytes(sealed(data.ljust(124, b"\0")))


def write_log(folder: Path, segments: Iterable[tuple[int, int]], per_frame: int = 1, delays: Mapping[int, int] | None = None,
              more: Iterable[int] = (), indexed: bool = True, clean: bool = True, synced: bool = False,
              ids: Mapping[int, bytes] | None = None) -> list[Written]:
    """A log of segments, each (first offset, messages), as a stop leaves it; all but the last have an index.

    delays: offset to due time. more: first offsets of frames whose batch continues. clean: see write_manifest().
    synced: each frame says that all before it were on disk. ids: the hash of a publish by the offset of its last record.
    """
    folder.mkdir(exist_ok=True)
    written: list[Written] = []
    for first, count in segments:
        if written and indexed:
            add_index(written[-1])
        before = written[-1] if written else None
        written.append(write_segment(folder, first, count, before, per_frame, delays or {}, set(more), synced, ids=ids))
    write_manifest(folder, written[-1], clean)
    return written


def write_segment(folder: Path, first: int, count: int, before: Written | None = None, per_frame: int = 1,
                  delays: Mapping[int, int] | None = None, more: Iterable[int] = (), synced: bool = False,
                  sequence: int = 0, log_id: int = LOG_ID, ids: Mapping[int, bytes] | None = None) -> Written:
    """One segment, without an index. Its number follows that of the one before."""
    sequence = sequence or (before.sequence + 1 if before else 1)
    salt, position, durable = 0x5A17_0000_0000_0000 + sequence, FRAMES_AT, FRAMES_AT
    data, frames = [header(log_id, sequence, first, salt, before)], []
    for at in range(first, first + count, per_frame):
        records = min(per_frame, first + count - at)
        made = frame(salt, position, at, records, delays or {}, MORE * (at in more), durable, ids)
        frames.append(Place(position, position + len(made), at, at + records))
        data.append(made.ljust((len(made) + 7) // 8 * 8, b"\0"))
        position += len(data[-1])
        durable = position if synced else durable
    path = folder / f"{first:020}.log"
    path.write_bytes(b"".join(data))
    earlier = before.before + before.end - before.first if before else 0
    due = max((when for offset, when in (delays or {}).items() if first <= offset < first + count), default=0)
    return Written(first, first + count, path, sequence, salt, position, frames, earlier, due)


def summary(segment: Written, hashes: Iterable[bytes], key: tuple[int, int] = ID_KEY) -> bytes:
    """The file of the ids of a sealed segment."""
    time = BASE + (segment.end - 1) * STEP
    data = b"".join(hash + struct.pack(">q", time) for hash in hashes)
    head = struct.pack(">8sIIQQQqqqq", b"NSQCIDS\n", 2, 0, LOG_ID, *key, segment.end, time, len(data) // 24, crc32c(data))
    return sealed(head.ljust(124, b"\0")) + data


def add_index(segment: Written) -> None:
    """Seals it."""
    entries, position = [], 0
    for place in segment.frames:
        if place.position >= position:
            entries.append((place.first, place.position, BASE + place.first * STEP))
            position = place.position + 65536
    if entries:
        with segment.path.open("ab") as file:
            file.write(index(segment.salt, entries))


def read_bodies(folder: Path | str, opened: Opened) -> dict[int, bytes]:
    """The readable records, by offset, read with the daemon's own code."""
    bodies: dict[int, bytes] = {}
    for segment in opened.segments:
        with open(segment_path(str(folder), segment.first), "rb") as file:
            at = segment.first
            while at < segment.end:
                first, at, _, data = records(file.fileno(), segment, at, 0, segment.end, 1 << 40, False)
                for offset in range(first, at):
                    length = 4 + int.from_bytes(data[:4], "big")
                    bodies[offset], data = data[30:length], data[length:]
    return bodies


def places(data: bytes) -> list[Place]:
    """The frames of a segment's file, all of which are sound."""
    found, position = [], FRAMES_AT
    while len(data) >= position + HEAD and data[position:position + 4] == b"nqFR":
        length, = struct.unpack_from(">I", data, position + 8)
        count, = struct.unpack_from(">I", data, position + 20)
        first, = struct.unpack_from(">q", data, position + 32)
        found.append(Place(position, position + HEAD + length, first, first + count))
        position = (found[-1].end + 7) // 8 * 8
    return found
