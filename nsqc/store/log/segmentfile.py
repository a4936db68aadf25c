"""One segment of a log topic, opened for reading: its index, and where records lie.

Reads by pieces, so a lookup costs a few small reads however large the segment is. Damage in the index costs reading
heads of records, from the last sound entry before it.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from types import TracebackType
from typing import NamedTuple

from nsqc.store.disk.segment import RECORD_HEAD_BYTES, RECORD_SIZE_BYTES
from nsqc.store.log.format import INDEX_ENTRY, INDEX_HEAD, LARGEST_SEGMENT, TIME_UNIT, checksum
from nsqc.store.log.names import segment_path
from nsqc.store.log.spans import next_time

MAGIC = b"NSQCIDX1"
HEAD = struct.Struct(">8sqqII")
ENTRY = struct.Struct(">IIII")
CHECKED = struct.Struct(">q12s")  # what the check of an entry covers
MORE = 1 << 31
NO_FILE = (errno.ENOENT, errno.ENXIO, errno.ELOOP)     # nothing is there, a socket, a link to itself


class Entry(NamedTuple):
    """What an index says about a record."""

    position: int
    more: bool  # its batch continues with the next record
    time: int  # in units of TIME_UNIT since the base time of the segment
    crc: int


class SegmentFile:
    """Raises OSError when its files cannot be opened or read; an index that is missing or a folder is as if damaged."""

    def __init__(self, folder: str, first: int, end: int, data_bytes: int):
        """end: the offset behind its last record, which ends at data_bytes."""
        self.first = first
        self.end = end
        self.bytes = data_bytes
        self.path = segment_path(folder, first, "dat")
        self._data = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        self._index = -1
        try:
            # What is not a file, a pipe perhaps, is as if damaged.
            self._index = os.open(segment_path(folder, first, "idx"), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in NO_FILE:
                os.close(self._data)
                raise
        if self._index >= 0 and not stat.S_ISREG(os.fstat(self._index).st_mode):
            os.close(self._index)
            self._index = -1
        self._head: tuple[int, int] | None = None

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        os.close(self._data)
        if self._index >= 0:
            os.close(self._index)

    @property
    def size(self) -> int:
        """Of the .dat; behind `bytes` lies what does not count."""
        return os.fstat(self._data).st_size

    @property
    def entries(self) -> int:
        """Whole ones in the index, also those behind the end."""
        return max(os.fstat(self._index).st_size - INDEX_HEAD, 0) // INDEX_ENTRY if self._index >= 0 else 0

    @property
    def base_ns(self) -> int | None:
        """What times begin with, ns since 1970; None: the head of the index is damaged."""
        head = self.head
        return None if head is None else head[0]

    @property
    def head(self) -> tuple[int, int] | None:
        """(what times begin with, how many segments may not have been synced when it began), as the index says; None:
        its head is damaged."""
        if self._head is None and self._index >= 0:
            data = os.pread(self._index, INDEX_HEAD, 0)
            if len(data) == INDEX_HEAD:
                magic, first, base, unsynced, crc = HEAD.unpack(data)
                if (magic, first, crc) == (MAGIC, self.first, checksum(data[:-4])):
                    self._head = base, unsynced
        return self._head

    def entry(self, offset: int) -> Entry | None:
        """The entry of a record; None: it is missing or damaged."""
        if self._index < 0:
            return None
        data = os.pread(self._index, INDEX_ENTRY, INDEX_HEAD + INDEX_ENTRY * (offset - self.first))
        if len(data) < INDEX_ENTRY:
            return None
        position, time, crc, check = ENTRY.unpack(data)
        if check != checksum(CHECKED.pack(offset, data[:12])):
            return None
        return Entry(position & ~MORE, bool(position & MORE), time, crc)

    def read_index(self, first: int, end: int) -> bytes:
        """The entries of a range, as they are."""
        return os.pread(self._index, INDEX_ENTRY * (end - first), INDEX_HEAD + INDEX_ENTRY * (first - self.first))

    def next_time_ns(self, offset: int, end: int) -> tuple[int, int] | None:
        """As time_ns(), of the first record from an offset on, up to another, whose entry is sound; with its offset."""
        base = self.base_ns
        found = None if base is None else next_time(self._index, (self.first, self.end, self.bytes), offset, end)
        return None if found is None or base is None else (found[0], base + found[1] * TIME_UNIT)

    def time_ns(self, offset: int) -> int | None:
        """When a record was published, ns since 1970, rounded down to TIME_UNIT; None: the index does not say."""
        entry, base = self.entry(offset), self.base_ns
        return None if entry is None or base is None else base + entry.time * TIME_UNIT

    def position(self, offset: int) -> int | None:
        """Where a record begins, or, for `end`, where the last one ends; None: damage has left no way to it."""
        if offset == self.end:
            return self.bytes
        entry = self.entry(offset)
        if entry is not None:
            return entry.position if entry.position < self.bytes else None
        before = offset
        while entry is None and before > self.first:
            before -= 1
            entry = self.entry(before)
        at = 0 if entry is None else entry.position
        while before < offset:
            length = self.length_at(at)
            if length is None:
                return None
            at += length
            before += 1
        return at

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Position and length of a record; None: its length is damaged, or there is no way to it."""
        at = self.position(offset)
        if at is None:
            return None
        length = self.length_at(at)
        if length is None:
            return None
        if offset + 1 == self.end:
            behind: int | None = self.bytes
        else:
            entry = self.entry(offset + 1)
            behind = entry.position if entry is not None else None
        return (at, length) if behind in (None, at + length) or self.is_intact(offset) else None

    def read(self, at: int, length: int) -> bytes:
        """Bytes of the .dat."""
        return os.pread(self._data, length, at)

    def is_intact(self, offset: int) -> bool:
        """Whether a record lies whole in the .dat and is what its entry says."""
        entry = self.entry(offset)
        if entry is None:
            return False
        head = self.read(entry.position, RECORD_SIZE_BYTES)
        length = RECORD_SIZE_BYTES + int.from_bytes(head, "big")
        if len(head) < RECORD_SIZE_BYTES or not RECORD_HEAD_BYTES <= length <= LARGEST_SEGMENT:
            return False
        # Not more than there is: a damaged size must not allocate gigabytes.
        if entry.position + length > self.size:
            return False
        return checksum(self.read(entry.position, length)) == entry.crc

    def length_at(self, at: int) -> int | None:
        """Of the record that begins there, as it says itself; None: that cannot be."""
        data = self.read(at, RECORD_SIZE_BYTES)
        length = RECORD_SIZE_BYTES + int.from_bytes(data, "big")
        if len(data) < RECORD_SIZE_BYTES or length < RECORD_HEAD_BYTES or at + length > self.bytes:
            return None
        return length
