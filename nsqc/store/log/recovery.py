"""What a log folder has when the daemon starts: the segments, where the last one ends, and the journals.

The last segment ends at the last record whose index entry is intact and whose batch is complete. What follows was
never acknowledged, and is cut off. Entries are written behind their records, so without a power failure a record that
does not match its entry was damaged later, and its batch counts.

The others were complete when the next one began, so every entry counts. What a power failure has left of their ends is
settled by the start behind it (torn.py), so all later ones find the same.

Numbering continues behind all offsets that may have been used, also of messages that are lost. If segments do not say
where, an empty file does, until one begins there: the next start does not know any more why.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from nsqc.log import Log
from nsqc.store.files import sync_folder
from nsqc.store.log.earlier import Earlier, read_earlier
from nsqc.store.log.files import UNBOUNDED
from nsqc.store.log.format import INDEX_ENTRY, INDEX_HEAD, checksum
from nsqc.store.log.gaps import is_missing, missing_ranges
from nsqc.store.log.look import Looks
from nsqc.store.log.names import MOST_OFFSET, id_of, id_path, new_id, next_of, next_path, split_name
from nsqc.store.log.notfiles import not_files, put_away
from nsqc.store.log.strays import is_stray

HEAD = struct.Struct(">8xqqII")  # of an index
ENTRY = struct.Struct(">IIII")
MORE = 1 << 31
# After a power failure offsets continue so far behind the first one of the last segment: no offset is used twice, even
# if records, and the segment after this one, are lost.
JUMP = 1 << 32
MOST_STRAYS = 10  # files of others that are named


class SegmentFound(NamedTuple):
    """A segment as it is: see nsqc/store/log/segments.pxd. unsynced: all but so many segments right before it, less
    one, were on disk when it began; 0: not known."""

    first: int
    end: int
    bytes: int
    due_bytes: int
    base_ns: int
    last_ns: int
    time: int
    unsynced: int = 0


class Opened(NamedTuple):
    """A log that is about to be used. resume_at: the next record has this offset; ends: in a new segment.
    id: 0 if it is new, or has none; synced: a run that was killed had synced the segments that begin before this."""

    exists: bool
    id: int
    segments: list[SegmentFound]
    next: int
    resume_at: int
    ends: bool
    synced: int
    journals: list[int]
    first_journal: int
    next_journal: int
    next_number: int
    journal_bytes: int
    earlier: Earlier | None


class Listed(NamedTuple):
    """Names in a folder."""

    segments: dict[int, Files]  # by first offset
    id: int  # 0: none
    mark: int  # where numbering continues at the least
    strays: list[str]  # files that are not of the log


class Files(NamedTuple):
    """Sizes of the files of one segment; None: it is missing."""

    dat: int | None = None
    idx: int | None = None
    due: int | None = None


NEW = Opened(exists=False, id=0, segments=[], next=0, resume_at=0, ends=True, synced=0, journals=[], first_journal=1,
             next_journal=1, next_number=1, journal_bytes=0, earlier=None)


def open_folder(folder: str, power_failed: bool, log: Log, looks: Looks, syncs: bool = False) -> Opened:
    """Reads a folder, and cuts off what was never acknowledged. looks: has the folder; syncs: OK waits for a sync.
    Raises OSError."""
    seen = looks.take(os.fsencode(folder))
    if seen is not None and power_failed and syncs and not has_whole_batches(folder, seen[1]):
        seen = None
    if seen is None:
        try:
            return mend_folder(folder, power_failed, log, syncs)
        except FileNotFoundError:
            return NEW
    log_id, found, earlier, mark = seen
    segments = [SegmentFound(*segment) for segment in found]
    begun = segments[-1].first if segments else None
    return opened(folder, log_id, segments, begun, mark, [], earlier, power_failed, log)


def has_whole_batches(folder: str, found: Sequence[tuple[int, ...]]) -> bool:
    """Whether all records have reached the disk. Raises OSError."""
    from nsqc.store.log.torn import are_whole  # here: only after a power failure

    return are_whole(folder, [(segment.first, segment.end, segment.unsynced)
                              for segment in (SegmentFound(*found) for found in found)])


def mend_folder(folder: str, power_failed: bool, log: Log, syncs: bool = False) -> Opened:
    """What a folder has of which something may be damaged, incomplete or missing. Raises OSError."""
    for name in not_files(folder):
        log.error("LOG(%s): %s is not a file: renamed to %s", folder, name, put_away(folder, name))
    listed = list_segments(folder)
    for name in listed.strays[:MOST_STRAYS]:
        log.error("LOG(%s): %s is not a segment of this log, and is left alone", folder, name)
    if listed.segments:
        from nsqc.store.log.repair import mend_indexes  # here: only where a log is opened
        from nsqc.store.log.torn import drop_parts, settle_ends, torn_from

        torn = torn_from(folder, begun_in(listed.segments)) if power_failed else UNBOUNDED
        mend_indexes(folder, lambda step: log.error("LOG: %s", step), torn)
        if power_failed and syncs:
            drop_parts(folder, torn, log)
        settle_ends(folder, torn, log)
        listed = list_segments(folder)
    files = listed.segments
    firsts = begun_in(files)
    for first in files.keys() - set(firsts):
        remove(folder, first)  # its records are gone: it was being removed
    segments: list[SegmentFound] = []
    is_sound = True
    for first, following in zip(firsts, [*firsts[1:], None], strict=False):
        found, is_sound = open_segment(folder, first, files[first], following, power_failed, log)
        segments.append(found)
    empty = []
    while segments and segments[-1].end == segments[-1].first:
        empty.append(segments.pop().first)
    begun = firsts[-1] if firsts else None
    return opened(folder, listed.id, segments, begun, listed.mark, empty, read_earlier(folder), power_failed, log,
                  is_sound)


def opened(folder: str, log_id: int, segments: list[SegmentFound], begun: int | None, mark: int, empty: list[int],
           earlier: Earlier, power_failed: bool, log: Log, is_sound: bool = True) -> Opened:
    """What that means. begun: the first offset of the last segment that ever was; mark: see Listed; empty: segments
    that are to be removed; is_sound: the last record is."""
    first_journal, last_journal, journal_bytes = earlier.journals
    if begun is None:
        begun = possible(earlier.topic_cursor or 0)
    end = segments[-1].end if segments else begun
    reached = possible(earlier.reached)
    resume_at = max(end, begun + JUMP if power_failed else begun, reached, mark)
    keep_place(folder, end, min(resume_at, MOST_OFFSET), mark, empty, log)
    missing = missing_ranges(segment[:2] for segment in segments)
    if not power_failed and is_missing(end, reached):
        missing.append((end, reached))
    if missing:
        others = f"; {len(missing) - 1} more such gaps" if missing[1:] else ""
        first, behind = missing[0]
        log.error("LOG(%s): messages %d to %d are gone, with their segment or its end%s", folder, first, behind - 1,
                  others)
    return Opened(
        exists=True, id=log_id or give_id(folder, log), segments=segments, next=end, resume_at=resume_at,
        ends=resume_at > end or not segments or not is_sound, synced=first_unsynced(segments),
        journals=earlier.numbers, first_journal=first_journal or 1,
        next_journal=last_journal + 1, next_number=earlier.next_number, journal_bytes=journal_bytes, earlier=earlier)


def first_unsynced(segments: list[SegmentFound]) -> int:
    """The first offset of the first segment that may be only in memory, as the last one says; 0: any may be."""
    if not segments or not (unsynced := segments[-1].unsynced) or unsynced > len(segments):
        return 0
    return segments[-unsynced].first


def possible(offset: int) -> int:
    """What a journal says, if a log may have come to that; otherwise 0."""
    return offset if offset <= MOST_OFFSET else 0


def keep_place(folder: str, end: int, resume_at: int, mark: int, empty: list[int], log: Log) -> None:
    """Leaves a file that says where numbering continues, if nothing else would say it at the next start, and removes
    what says it now, or has said it, and is not needed any more."""
    try:
        if resume_at > max(end, mark):
            os.close(os.open(next_path(folder, resume_at), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if empty and resume_at > end:
            # Its name before theirs are gone. Without them another power failure leads to the same offset.
            sync_folder(folder)
    except OSError as error:
        log.error("LOG(%s): failed to write where its numbering continues - %s", folder, error)
        return
    for first in empty:
        remove(folder, first)
    if mark and (end > mark or resume_at > mark):
        with suppress(OSError):
            os.unlink(next_path(folder, mark))


def list_segments(folder: str) -> Listed:
    """What the names in a folder say. Raises OSError."""
    found: dict[int, Files] = {}
    ids = []
    mark = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            name = split_name(entry.name)
            if name is not None and entry.is_file():
                first, kind = name
                found[first] = found.get(first, Files())._replace(**{kind: entry.stat().st_size})
            elif name is None and (log_id := id_of(entry.name)):
                ids.append(log_id)
            mark = max(mark, next_of(entry.name))
    strays = [f"{first:020}.{kind}" for first in sorted(found) if is_stray(folder, first)
              for kind, size in found.pop(first)._asdict().items() if size is not None]
    return Listed(found, min(ids, default=0), mark, strays)


def begun_in(files: dict[int, Files]) -> list[int]:
    """The first offsets of segments that have records."""
    return sorted(first for first, found in files.items() if found.dat is not None)


def give_id(folder: str, log: Log) -> int:
    """Gives a log of an earlier version an id; 0 if that cannot be written."""
    log_id = new_id()
    try:
        os.close(os.open(id_path(folder, log_id), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        sync_folder(folder)
    except OSError as error:
        log.error("LOG(%s): failed to write its id - %s", folder, error)
        return 0
    return log_id


def remove(folder: str, first: int) -> None:
    """Removes what is left of a segment."""
    for kind in ("dat", "idx", "due"):
        with suppress(FileNotFoundError):
            os.unlink(f"{folder}/{first:020d}.{kind}")


def open_segment(folder: str, first: int, files: Files, following: int | None, power_failed: bool,
                 log: Log) -> tuple[SegmentFound, bool]:
    """One segment, and whether its last record is sound. If it is the last one, it is cut behind what counts."""
    path = f"{folder}/{first:020d}"
    is_sound = True
    with open(f"{path}.dat", "r+b") as dat, open(f"{path}.idx", "r+b" if files.idx is not None else "w+b") as idx:
        head = os.pread(idx.fileno(), INDEX_HEAD, 0).ljust(INDEX_HEAD, b"\0")
        begins_with, base_ns, unsynced, check = HEAD.unpack(head)
        if begins_with != first or check != checksum(head[:-4]):
            unsynced = 0
        count, size, time = last_record(dat.fileno(), idx.fileno(), first, files)
        if following is not None:
            known = min(following - first, entries_of(files))
            if count != known:
                # What is wrong at its end is damage; or it reaches into the next one.
                size = (files.dat or 0) if count < known else size
                count = known
        elif not power_failed and (vouched := last_vouched(idx.fileno(), first, files)) > count:
            log.error("LOG(%s): segment %d: its last record is damaged", folder, first)
            count, size, is_sound = vouched, files.dat or 0, False
        elif (size, INDEX_HEAD + count * INDEX_ENTRY) != (files.dat, files.idx):
            log.warn("LOG(%s): segment %d: %d bytes that were never acknowledged are cut off", folder, first,
                     (files.dat or 0) - size)
            dat.truncate(size)
            idx.truncate(INDEX_HEAD + count * INDEX_ENTRY)
        last_ns = os.fstat(dat.fileno()).st_mtime_ns
    return SegmentFound(first, first + count, size, files.due or 0, base_ns, last_ns, time, unsynced), is_sound


def entries_of(files: Files) -> int:
    """Whole entries in the index of a segment."""
    return max(((files.idx or 0) - INDEX_HEAD) // INDEX_ENTRY, 0)


def entry_at(idx: int, first: int, index: int) -> tuple[int, int, int] | None:
    """(position, time, checksum) of the record of a sound entry with which a batch ends; None: it is not one."""
    raw = os.pread(idx, INDEX_ENTRY, INDEX_HEAD + index * INDEX_ENTRY)
    position, time, crc, check = ENTRY.unpack(raw)
    is_end = checksum(struct.pack(">q", first + index) + raw[:12]) == check and not position & MORE
    return (position, time, crc) if is_end else None


def last_vouched(idx: int, first: int, files: Files) -> int:
    """Records up to the last entry that ends a batch and says that its record was begun within the data."""
    for count in range(entries_of(files), 0, -1):
        entry = entry_at(idx, first, count - 1)
        if entry is not None and entry[0] < (files.dat or 0):
            return count
    return 0


def last_record(dat: int, idx: int, first: int, files: Files) -> tuple[int, int, int]:
    """(records, bytes of them, time of the last index entry) of a segment."""
    for count in range(entries_of(files), 0, -1):
        entry = entry_at(idx, first, count - 1)
        if entry is None:
            continue
        position, time, crc = entry
        length = 4 + int.from_bytes(os.pread(dat, 4, position), "big")
        # Not more than there is: a damaged size must not allocate gigabytes.
        if position + length <= (files.dat or 0) and checksum(os.pread(dat, length, position)) == crc:
            return count, position + length, time
    return 0, 0, 0
