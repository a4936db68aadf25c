"""What a power failure has left of segments before the last: decided once, so that all later starts find the same.

The next segment was begun behind them, so all of their messages had been accepted, batches as well. Those count whose
records and entries are on the disk. Behind the last of them a segment is cut off, even within a batch, which ends there
from then on. Damage before it stays as it is: a blank entry says that its message is lost.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

from nsqc.log import Log
from nsqc.store.badfiles import bad_name
from nsqc.store.log.files import UNBOUNDED, read_folder, with_following
from nsqc.store.log.format import INDEX_ENTRY, INDEX_HEAD, TIME_UNIT, checksum
from nsqc.store.log.gaps import is_missing
from nsqc.store.log.names import segment_path
from nsqc.store.log.segmentfile import MAGIC, Entry, SegmentFile

TIMESTAMP = slice(4, 12)  # of a record


def torn_from(folder: str, firsts: list[int]) -> int:
    """The first segment that may not have been synced, of those that begin with these offsets, as all heads of indexes
    say that are there. Raises OSError."""
    synced = 0
    for number, first in enumerate(firsts):
        with suppress(FileNotFoundError), SegmentFile(folder, first, first, 0) as file:
            if file.head is not None and file.head[1]:
                synced = max(synced, number + 1 - file.head[1])
    return firsts[synced] if firsts else UNBOUNDED


def settle_ends(folder: str, torn: int, log: Log) -> None:
    """Settles the ends of segments from an offset on, but for the last. Raises OSError."""
    for segment, below in with_following(read_folder(folder)) if torn != UNBOUNDED else ():
        if torn <= segment.first and below != UNBOUNDED:
            settle_end(folder, segment.first, segment.size, below, log)


def settle_end(folder: str, first: int, size: int, below: int, log: Log) -> None:
    """Settles the end of one segment, whose data has a size and which ends before an offset. Raises OSError."""
    with SegmentFile(folder, first, below, size) as file:
        known = min(first + file.entries, below)
        end = known
        while end > first and not file.is_intact(end - 1):
            end -= 1
        entry = file.entry(end - 1) if end > first else None
        data_bytes = entry.position + (file.length_at(entry.position) or 0) if entry else 0
        base_ns = file.base_ns
        if base_ns is None:
            base_ns = base_of(file, entry)
        elif end == below or (end == known and size == data_bytes and not (entry and entry.more)):
            return
    if end < below:
        lost = below if is_missing(end, below) else known
        log.error("LOG(%s): segment %d: messages %d to %d have not reached the disk", folder, first, end, lost - 1)
    dat = segment_path(folder, first, "dat")
    if end == first and size:
        # All of it, however much that is: somebody may find out what it was.
        os.rename(dat, bad_name(dat))
        os.close(os.open(dat, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    descriptor = os.open(segment_path(folder, first, "idx"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, index_head(first, base_ns), 0)
        if end < below:
            if entry:
                os.pwrite(descriptor, index_entry(end - 1, entry), INDEX_HEAD + INDEX_ENTRY * (end - 1 - first))
            os.ftruncate(descriptor, INDEX_HEAD + INDEX_ENTRY * (end - first))
            os.truncate(dat, data_bytes)
    finally:
        os.close(descriptor)


def base_of(file: SegmentFile, entry: Entry | None) -> int:
    """What the times of an index begin with that has lost its head, by one of its records."""
    if entry is None:
        return 0
    return int.from_bytes(file.read(entry.position, TIMESTAMP.stop)[TIMESTAMP], "big") - entry.time * TIME_UNIT


def index_head(first: int, base_ns: int) -> bytes:
    """Of which nothing says what was synced before."""
    head = struct.pack(">8sqqI", MAGIC, first, base_ns, 0)
    return head + struct.pack(">I", checksum(head))


def index_entry(offset: int, entry: Entry) -> bytes:
    """The entry with which a batch ends."""
    fields = struct.pack(">III", entry.position, entry.time, entry.crc)
    return fields + struct.pack(">I", checksum(struct.pack(">q", offset) + fields))
