"""The staging log: a folder of segments that holds messages from nsqd until Spark has finished them.

    log.json            the log's uuid, topic and channel, and Spark's progress at the last update
    lock                flock of the one query that uses the folder
    NUMBER.seg          frames (nsqc.spark.stagelog), from the row with that number on; 20 digits

Rows are counted over the life of the log. Rows returned by sync() survive a crash of the machine; a torn write at the
end of the last segment is cut off. Segments whose rows are all released are removed, except for the newest rows: their
ids serve to recognise redeliveries after a restart. Thread-safe for one writer and one reader.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import struct
import threading
import time
import uuid
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from nsqc.spark import columns
from nsqc.spark.columns import ID_BYTES
from nsqc.store.files import replace_file, sync_folder
from nsqc.wire.outside import decode

# ====================================================================== frames
# A frame of the staging log: messages of one nsqd as an Arrow batch with a checksum. Knows no files.
#
#     offset  bytes  field                        numbers little-endian
#          0      4  CRC-32 of all that follows
#          4      4  length of the Arrow message, a multiple of 8
#          8      4  rows
#         12      4  length of the nsqd's address
#         16      8  number of its first row in the log
#         24      n  address, padded with zeros to a multiple of 8
#                 m  Arrow IPC record batch: value, id, timestamp, attempts
#
# Topic and nsqd are the same for all rows and are added when a frame is read.

Bytes: TypeAlias = bytes | memoryview

HEAD = struct.Struct("<IIIIq")
STORED = columns.schema(["value", "id", "timestamp", "attempts"])
FULL_SCHEMA = columns.schema(columns.names(columns.MESSAGE))
MAX_NODE_BYTES = 512


class BadFrame(ValueError):
    """The bytes are not a complete and intact frame."""


class Head(NamedTuple):
    """The fixed part of a frame."""

    crc: int
    body: int
    rows: int
    node: int
    first: int

    @property
    def length(self) -> int:
        """Bytes of the whole frame."""
        return HEAD.size + padded(self.node) + self.body


def padded(length: int) -> int:
    """The next multiple of 8."""
    return -(-length // 8) * 8


def encode(first: int, node: str, batch: pa.RecordBatch) -> tuple[list[Bytes | pa.Buffer], int]:
    """A frame in parts, and its length. batch: the stored columns."""
    name = node.encode()
    if not 0 < len(name) <= MAX_NODE_BYTES:
        raise ValueError(f"an address has 1 to {MAX_NODE_BYTES} bytes")
    name += bytes(padded(len(name)) - len(name))
    body = batch.serialize()
    head = HEAD.pack(0, body.size, batch.num_rows, len(node.encode()), first)
    crc = zlib.crc32(body, zlib.crc32(name, zlib.crc32(head[4:])))
    return [struct.pack("<I", crc) + head[4:], name, body], HEAD.size + len(name) + body.size


def read_head(data: Bytes) -> Head:
    """Parses the head at the start of data, without verifying its checksum. Raises BadFrame."""
    if len(data) < HEAD.size:
        raise BadFrame("an incomplete head")
    head = Head(*HEAD.unpack_from(data))
    if not head.rows or not 0 < head.node <= MAX_NODE_BYTES or head.body % 8 or head.first < 0:
        raise BadFrame("not a head")
    return head


def check(data: Bytes) -> Head:
    """The head of the frame in data, verified. Raises BadFrame."""
    head = read_head(data)
    if head.length != len(data):
        raise BadFrame("an incomplete frame")
    if zlib.crc32(memoryview(data)[4:]) != head.crc:
        raise BadFrame("the checksum differs")
    return head


def decode_frames(data: Bytes, topic: str) -> pa.RecordBatch:
    """All columns of the frame in data. Raises BadFrame."""
    node, stored = decode_stored(data)
    count = stored.num_rows
    value, ids, times, attempts = stored.columns
    return pa.RecordBatch.from_arrays(
        [value, columns.same(topic, count), ids, times, attempts, columns.same(node, count)], schema=FULL_SCHEMA)


def decode_stored(data: Bytes) -> tuple[str, pa.RecordBatch]:
    """The nsqd's address and the stored columns. Raises BadFrame."""
    head = check(data)
    begin = HEAD.size + padded(head.node)
    try:
        node = bytes(data[HEAD.size:HEAD.size + head.node]).decode()
        batch = pa.ipc.read_record_batch(pa.py_buffer(data).slice(begin, head.body), STORED)
        # The checksum only proves that the bytes are unchanged: Arrow would follow any offsets.
        batch.validate(full=True)
    except (ValueError, EOFError, OSError, MemoryError, pa.ArrowException) as error:
        raise BadFrame(f"not a batch: {error}") from None
    if batch.num_rows != head.rows:
        raise BadFrame(f"{batch.num_rows} rows instead of {head.rows}")
    return node, batch


# ====================================================================== stagelog

log = logging.getLogger("nsqc.spark")

VERSION = 1
LOCK_SECONDS = 15.0         # a query that was just stopped may still be requeuing its messages
MAGIC = b"NSQCLOG1"
SUFFIX = ".seg"
NUMBER = re.compile("[0-9]{20}")
MOST_ROW = 2**62            # no log gets that far
UUID = re.compile("[0-9a-f]{32}")
READ_BYTES = 1 << 20


class StageError(RuntimeError):
    """The staging directory cannot be used; the text has the reason and a remedy."""


class Place(NamedTuple):
    """The position of a frame, and its rows from first to end."""

    path: str
    offset: int
    length: int
    first: int
    end: int


class StageLog:
    """The log in folder, created if missing. Exclusive: raises StageError if another query uses the folder, if it
    belongs to another topic or channel, or if it is damaged; OSError."""

    def __init__(self, folder: str, topic: str, channel: str, segment_bytes: int, keep_rows: int = 0,
                 skip_bad: bool = False, wait: float = LOCK_SECONDS):
        self.folder = Path(folder)
        self.segment_bytes = segment_bytes
        self.keep_rows = keep_rows
        self.skip_bad = skip_bad
        self._mutex = threading.Lock()
        self._places: list[Place] = []
        self._firsts: list[int] = []    # of _places, for bisection
        self._file = -1
        self._path = ""
        self._size = 0      # of the segment being written
        self._live = 0      # bytes of unreleased frames
        self.rows = 0       # written and synced
        self._written = 0   # rows, synced or not
        self._oldest: dict[int, int] = {}   # lowest timestamp of a frame, microseconds, by its first row
        self.released = 0   # rows that Spark has finished
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._take_lock(wait)
        try:
            self._open(topic, channel)
            self._recover()
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------ opening

    def _take_lock(self, wait: float) -> int:
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    raise StageError(f"stagingDir={self.folder} is in use by another query: each query, and each use "
                                     "of the source in one query, needs its own") from None
                time.sleep(0.02)

    def _open(self, topic: str, channel: str) -> None:
        self.uuid = uuid.uuid4().hex
        self.about = {"version": VERSION, "uuid": self.uuid, "topic": topic, "channel": channel}
        try:
            about = decode((self.folder / "log.json").read_text())
            self.about = {key: about[key] for key in self.about}
            self.uuid, self.released = str(about["uuid"]), int(about["released"])
            if not UUID.fullmatch(self.uuid):
                raise ValueError("its uuid is not one")
        except FileNotFoundError:
            if any(self.folder.glob(f"*{SUFFIX}")):
                raise StageError(f"stagingDir={self.folder} has segments, but its log.json is missing") from None
            self._note(durable=True)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise StageError(f"stagingDir={self.folder}: log.json is not readable: {error!r}") from None
        version, owner = self.about["version"], (self.about["topic"], self.about["channel"])
        if version != VERSION:
            raise StageError(f"stagingDir={self.folder} was written by another version ({version}, this is {VERSION})")
        if owner != (topic, channel):
            raise StageError(f"stagingDir={self.folder} belongs to topic {owner[0]}, channel {owner[1]}")

    def _note(self, durable: bool) -> None:
        """Writes log.json. A crash may lose Spark's progress, and some rows are then read again."""
        replace_file(self.folder / "log.json", json.dumps(self.about | {"released": self.released}).encode(), durable)

    def _recover(self) -> None:
        """Finds the frames of all segments and cuts off a torn write."""
        segments = sorted(self.folder.glob(f"*{SUFFIX}"))
        for path in segments:
            # Its end is cut off, or it is removed. A link may lead to anything.
            if (not NUMBER.fullmatch(path.stem) or int(path.stem) > MOST_ROW or path.is_symlink()
                    or not path.is_file()):
                raise StageError(f"{path} is not a segment: move it away")
        self.rows = int(segments[0].stem) if segments else 0
        for path in segments:
            if int(path.stem) > self.rows:
                self._damage(path, 0, f"rows {self.rows} to {int(path.stem)} are missing")
                self.rows = int(path.stem)
            end = self._scan(path, path == segments[-1])
            if path == segments[-1]:
                os.truncate(path, end)
                if self._places and self._places[-1].path != str(path):
                    path.unlink()   # empty: the previous one is continued
        self._written = self.rows
        self.released = min(max(self.released, self.first), self.rows)
        self._live = sum(place.length for place in self._places if place.end > self.released)

    def _scan(self, path: Path, last: bool) -> int:
        """Adds the frames of a segment; returns the offset after the last."""
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(len(MAGIC) + 32) != MAGIC + self.uuid.encode():
                if last and size < len(MAGIC) + 32:     # a crash right after it was created
                    path.write_bytes(MAGIC + self.uuid.encode())
                    return len(MAGIC) + 32
                raise StageError(f"{path} is not a segment of the log {self.uuid}")
            at = file.tell()
            while at < size:
                try:
                    file.seek(at)
                    head = read_head(file.read(HEAD.size))
                    file.seek(at)
                    if at + head.length > size or head.first != self.rows:
                        raise BadFrame("an incomplete frame")
                    if last:    # earlier segments were synced before the next was started; reading verifies them
                        check(file.read(head.length))
                except BadFrame as error:
                    if last and self._is_torn(file, at, size):
                        log.warning("%s: cut off %d bytes of a torn write", path, size - at)
                        return at
                    self._damage(path, at, str(error))
                    return at
                self._add(Place(str(path), at, head.length, self.rows, self.rows + head.rows))
                self.rows += head.rows
                at += head.length
        return at

    @staticmethod
    def _is_torn(file: BinaryIO, at: int, size: int) -> bool:
        """Whether no intact frame follows: only the last write can be torn."""
        file.seek(at)
        rest = file.read(size - at)
        for begin in range(8, len(rest) - HEAD.size, 8):
            try:
                head = read_head(rest[begin:begin + HEAD.size])
                check(rest[begin:begin + head.length])
            except BadFrame:
                continue
            return False
        return True

    def _damage(self, path: Path, at: int, what: str) -> None:
        """Raises StageError unless damage is to be skipped."""
        if not self.skip_bad:
            raise StageError(f"{path} is damaged at offset {at} ({what}): rows that were finished at nsqd are lost; "
                             "onBadRecord=skip continues without them")
        log.error("%s is damaged at offset %d (%s): skipping the rest of it", path, at, what)

    def _add(self, place: Place) -> None:
        self._places.append(place)
        self._firsts.append(place.first)

    # ------------------------------------------------------------------ writing

    def append(self, node: str, batch: pa.RecordBatch) -> int:
        """Appends the stored columns of one nsqd's messages; returns their bytes. Not durable before sync().
        Raises OSError; the log is then unchanged."""
        if self._file < 0 or self._size >= self.segment_bytes:
            self._roll()
        parts, length = encode(self._written, node, batch)
        try:
            write_all(self._file, parts)
        except OSError:
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
            raise
        oldest = oldest_of(batch)
        with self._mutex:
            self._oldest[self._written] = oldest
            self._add(Place(self._path, self._size, length, self._written, self._written + batch.num_rows))
            self._live += length
        self._size += length
        self._written += batch.num_rows
        return length

    def sync(self) -> int:
        """Makes all appended rows durable; returns the row count of the log. Raises OSError."""
        if self._file >= 0:
            os.fdatasync(self._file)
        with self._mutex:
            self.rows = self._written
        return self.rows

    def _roll(self) -> None:
        """Starts a segment, or continues one of an earlier run that is not full."""
        if self._file >= 0:
            os.fdatasync(self._file)
            os.close(self._file)
            self._file = -1
        last = self._places[-1] if self._places else None
        if last is not None and not self._path and last.offset + last.length < self.segment_bytes:
            self._path, self._size = last.path, last.offset + last.length
            self._file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
            return
        self._path = str(self.folder / f"{self._written:020d}{SUFFIX}")
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._size = write_all(self._file, [MAGIC + self.uuid.encode()])
        os.fdatasync(self._file)
        sync_folder(self.folder)

    # ------------------------------------------------------------------ reading

    @property
    def first(self) -> int:
        """The first row in the log."""
        return self._places[0].first if self._places else self.rows

    @property
    def live_bytes(self) -> int:
        """Bytes of frames that Spark has not finished."""
        return self._live

    def places(self, start: int, end: int) -> list[Place]:
        """The frames with rows from start to end."""
        with self._mutex:
            begin = max(bisect_right(self._firsts, start) - 1, 0)
            stop = bisect_right(self._firsts, max(end - 1, 0))
            return [place for place in self._places[begin:stop] if place.end > start and place.first < end]

    def oldest(self, row: int) -> int | None:
        """The time, microseconds since 1970, of the oldest message in the frame with this row; None if there is none,
        or the frame is not readable."""
        places = self.places(row, self.rows)
        if not places:
            return None
        first = places[0].first
        if first not in self._oldest:       # staged by an earlier run: read it once
            try:
                self._oldest[first] = oldest_of(decode_stored(read_place(places[0]))[1])
            except (OSError, BadFrame):
                return None
        return self._oldest[first]

    def rows_within(self, start: int, max_bytes: int) -> int:
        """The end of the frames from row start on that fit into max_bytes; at least one frame."""
        end = start
        for place in self.places(start, self.rows):
            max_bytes -= place.length
            if max_bytes < 0 and end > start:
                break
            end = place.end
        return end

    def newest(self, rows: int) -> Iterator[tuple[str, pa.RecordBatch]]:
        """At least the last rows, frame by frame: (nsqd, stored columns)."""
        for place in self.places(max(self.rows - rows, 0), self.rows):
            try:
                yield decode_stored(read_place(place))
            except BadFrame as error:
                self._damage(Path(place.path), place.offset, str(error))

    def newest_ids(self) -> Iterator[tuple[str, memoryview]]:
        """The message ids of the newest keep_rows rows, 16 bytes each, with their nsqd."""
        for node, batch in self.newest(self.keep_rows):
            column = batch.column(1)
            yield node, memoryview(column.buffers()[2]).cast("B")[:len(column) * ID_BYTES]

    # ------------------------------------------------------------------ releasing

    def release(self, row: int) -> None:
        """Spark has finished all rows before this one: removes segments that are no longer needed."""
        if row <= self.released:
            return
        with self._mutex:
            self.released = min(row, self.rows)
            self._live = sum(place.length for place in self._places if place.end > self.released)
            keep = min(self.released, self._written - self.keep_rows)
            last = {place.path: place.end for place in self._places}
            done = {path for path, end in last.items() if end <= keep and path != self._places[-1].path}
            self._places = [place for place in self._places if place.path not in done]
            self._firsts = [place.first for place in self._places]
            self._oldest = {first: at for first, at in self._oldest.items() if first >= self.released - self.keep_rows}
        self._note(durable=False)
        for path in sorted(done):
            os.unlink(path)

    def close(self) -> None:
        """Releases the folder. Idempotent."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1


def oldest_of(batch: pa.RecordBatch) -> int:
    """The lowest timestamp of the stored columns, microseconds since 1970."""
    return int(pc.min(batch.column(2).cast(pa.int64())).as_py() or 0)


def write_all(descriptor: int, parts: Sequence[Bytes | pa.Buffer]) -> int:
    """Writes all parts; returns their bytes. Raises OSError."""
    views = [memoryview(part).cast("B") for part in parts]
    total = sum(len(view) for view in views)
    while views:
        done = os.writev(descriptor, views)
        while views and done >= len(views[0]):
            done -= len(views.pop(0))
        if views and done:
            views[0] = views[0][done:]
    return total


def read_place(place: Place) -> bytes:
    """The bytes of one frame. Raises OSError, BadFrame if the file is shorter."""
    descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(descriptor, place.length, place.offset)
    finally:
        os.close(descriptor)
    if len(data) != place.length:
        raise BadFrame("an incomplete frame")
    return data
