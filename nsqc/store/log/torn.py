"""What a power failure has left of segments: decided once, so that all later starts find the same.

Before the last, the next segment was begun behind them, so all of their messages had been accepted, batches as well.
Those count whose records and entries are on the disk. Behind the last of them a segment is cut off, even within a
batch, which ends there from then on. Damage before it stays as it is: a blank entry says that its message is lost.

Where OK waits for a sync, nothing behind the first message that has not reached the disk was acknowledged. There,
batches of which a part is missing are left out as a whole. What lacks no whole sector was damaged, and lost, otherwise:
that costs no other message.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from nsqc.log import Log
from nsqc.store.badfiles import bad_name
from nsqc.store.disk.segment import RECORD_HEAD_BYTES
from nsqc.store.log.files import UNBOUNDED, read_folder, with_following
from nsqc.store.log.format import INDEX_ENTRY, INDEX_HEAD, TIME_UNIT, checksum
from nsqc.store.log.gaps import is_missing
from nsqc.store.log.names import segment_path
from nsqc.store.log.scan import BAD_RECORD, BLANK, SOUND, scan_segment
from nsqc.store.log.segmentfile import MAGIC, Entry, SegmentFile

TIMESTAMP = slice(4, 12)  # of a record
SECTOR = 512  # the least that a disk writes
MOST_CRC = 2**32 - 1


def torn_from(folder: str, firsts: list[int]) -> int:
    """The first segment that may not have been synced, of those that begin with these offsets, as all heads of indexes
    say that are there. Raises OSError."""
    synced = 0
    for number, first in enumerate(firsts):
        with suppress(FileNotFoundError), SegmentFile(folder, first, first, 0) as file:
            if file.head is not None and file.head[1]:
                synced = max(synced, number + 1 - file.head[1])
    return firsts[synced] if firsts else UNBOUNDED


def are_whole(folder: str, segments: Sequence[tuple[int, int, int]]) -> bool:
    """Whether all of the last segments is sound; (first offset, end, how many may not have been synced when it began,
    0: unknown) of each. Raises OSError."""
    synced = max((number + 1 - unsynced for number, (_, _, unsynced) in enumerate(segments) if unsynced), default=0)
    return all(kind == SOUND for first, end, _ in segments[synced:] for kind, _, _ in runs_of(folder, first, end))


def runs_of(folder: str, first: int, end: int) -> list[tuple[int, int, int]]:
    """(what is wrong, first offset, end) of the messages of a segment, up to one. Raises OSError."""
    return scan_segment(segment_path(folder, first, "dat"), segment_path(folder, first, "idx"), first, end)[0]


def drop_parts(folder: str, torn: int, log: Log) -> None:
    """Leaves out what is left of batches that have not reached the disk as a whole, of segments from an offset on:
    their entries become blank, but for the last, which says where they end. Raises OSError."""
    for segment, below in with_following(read_folder(folder)):
        known = min(segment.first + segment.entries, below)
        if segment.first < torn or known == segment.first:
            continue
        with SegmentFile(folder, segment.first, known, segment.size) as file:
            parts = [(begin, end, entries_of_lost(file, begin, end))
                     for begin, end in parts_of(file, runs_of(folder, segment.first, known))
                     if any(map(file.is_intact, range(begin, end)))]
        if not parts:
            continue
        log.error("LOG(%s): segment %d: messages %d to %d have not all reached the disk, so their batches, which were "
                  "not acknowledged, are left out: %d messages", folder, segment.first, parts[0][0], parts[-1][1] - 1,
                  sum(end - begin for begin, end, _ in parts))
        descriptor = os.open(segment_path(folder, segment.first, "idx"), os.O_WRONLY | os.O_CLOEXEC)
        try:
            for begin, _, entries in parts:
                os.pwrite(descriptor, entries, INDEX_HEAD + INDEX_ENTRY * (begin - segment.first))
        finally:
            os.close(descriptor)


def parts_of(file: SegmentFile, runs: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Offsets of batches of which some messages have not reached the disk. Where entries are missing, all up to the
    next end of a batch may be of one."""
    done = file.first
    for kind, begin, end in runs:
        if kind == BLANK and (end == file.end or (INDEX_HEAD + INDEX_ENTRY * (end - file.first)) % SECTOR == 0):
            holes: Iterable[int] = (begin,)
        else:
            holes = (offset for offset in range(begin, end) if kind == BAD_RECORD and was_not_written(file, offset))
        for offset in holes:
            if offset < done:
                continue
            first, done, entry = begin_of_batch(file, offset, done), offset + 1, file.entry(offset)
            while done < file.end and (entry is None or entry.more):
                entry = file.entry(done)
                done += 1
            if done - first > 1:
                yield first, done
    if done < file.end and (first := begin_of_batch(file, file.end, done)) < file.end:
        yield first, file.end


def begin_of_batch(file: SegmentFile, offset: int, least: int) -> int:
    """The first message of the batch that a message belongs to, but no earlier one than `least`."""
    while offset > least and (before := file.entry(offset - 1)) and before.more:
        offset -= 1
    return offset


def entries_of_lost(file: SegmentFile, begin: int, end: int) -> bytes:
    """Of messages that are left out. The last one fits no record: another start finds the same batches."""
    last = file.entry(end - 1)
    if last is None or last.more:
        return bytes(INDEX_ENTRY * (end - begin))
    crc = last.crc ^ MOST_CRC if file.is_intact(end - 1) else last.crc
    return bytes(INDEX_ENTRY * (end - begin - 1)) + index_entry(end - 1, last._replace(crc=crc))


def was_not_written(file: SegmentFile, offset: int) -> bool:
    """Whether a record, which is not what its entry says, lacks a sector; if not, it was damaged later."""
    entry, behind = file.entry(offset), file.entry(offset + 1)
    if entry is None:
        return True
    at = entry.position
    end = behind.position if behind else at + (file.length_at(at) or RECORD_HEAD_BYTES)
    if end > file.bytes:
        return True
    data = file.read(at, end - at)
    sectors = range(at - at % SECTOR, end, SECTOR)
    return any(not any(data[max(sector - at, 0):sector + SECTOR - at]) for sector in sectors)


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
