"""What lies in the folder of a log topic: segments, and records by offset and by time.

Nothing here writes, asks a daemon, or keeps files open. All of it reads from the disk: it is for worker threads and
tools. Whoever knows the segments of a running daemon (TopicLog.table) passes them; read_folder() finds out what the
files say.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from nsqc.store.disk.segment import count
from nsqc.store.log.format import LARGEST_SEGMENT, TIME_UNIT
from nsqc.store.log.names import id_of, segment_path, split_name
from nsqc.store.log.notfiles import leads_to_file
from nsqc.store.log.segmentfile import SegmentFile
from nsqc.store.log.strays import is_stray

# First offset, offset behind the last, bytes of data: in order, as TopicLog.table has them.
Bounds = tuple[int, int, int]
UNBOUNDED = 2**63 - 1  # in place of the next segment's first offset


class Segment(NamedTuple):
    """A segment, as its files say."""

    first: int  # offset of its first record
    end: int  # behind its last
    bytes: int  # of its records
    size: int  # of the .dat; what lies behind `bytes` was refused, or never acknowledged
    entries: int  # in the index; those behind `end` included
    base_ns: int | None  # what its times begin with, since 1970; None: the index is missing, or its head is damaged
    last_ns: int | None  # time of its last record; None: there is none, or the index does not say
    intact: int  # behind the last record that is what its entry says; in the last segment, one that ends a batch

    @property
    def bounds(self) -> Bounds:
        """For the functions below."""
        return self.first, self.end, self.bytes


class LogFiles(NamedTuple):
    """The folder of a log topic."""

    folder: str
    segments: list[Segment]  # in order
    due: list[int]  # first offsets of segments that have a .due file
    orphans: list[str]  # names of .idx and .due files without a .dat
    id: int  # 0: it has none
    strays: list[str]  # names of files that are not of the log

    @property
    def bounds(self) -> list[Bounds]:
        """For the functions below."""
        return [segment.bounds for segment in self.segments]

    @property
    def next(self) -> int:
        """Behind the last record; 0: there is none yet."""
        return self.segments[-1].end if self.segments else 0


def read_folder(folder: str) -> LogFiles:
    """The segments in a folder. Where one ends is found from its last entries. Raises OSError."""
    with os.scandir(folder) as entries:
        found = [entry.name for entry in entries if leads_to_file(entry)]
    names = [parts for name in found if (parts := split_name(name)) is not None]
    stray = {first for first, _ in names if is_stray(folder, first)}
    strays = sorted(f"{first:020}.{kind}" for first, kind in names if first in stray)
    names = [(first, kind) for first, kind in names if first not in stray]
    log_id = min(filter(None, map(id_of, found)), default=0)
    firsts = sorted(first for first, kind in names if kind == "dat")
    known = set(firsts)
    segments = [read_segment(folder, first, following)
                for first, following in itertools.pairwise([*firsts, UNBOUNDED])]
    due = sorted(first for first, kind in names if kind == "due" and first in known)
    orphans = sorted(f"{first:020}.{kind}" for first, kind in names if first not in known)
    return LogFiles(folder, segments, due, orphans, log_id, strays)


def read_segment(folder: str, first: int, below: int) -> Segment:
    """A segment that ends before an offset, which belongs to the next. Raises OSError."""
    size = os.path.getsize(segment_path(folder, first, "dat"))
    with SegmentFile(folder, first, below, size) as file:
        known = end = min(first + file.entries, below)
        is_last = below == UNBOUNDED
        while end > first:
            entry = file.entry(end - 1)
            if entry is not None and not (is_last and entry.more) and file.is_intact(end - 1):
                break
            end -= 1
        if end == first and size and file.base_ns is None:
            # The index is gone: only the records say how many there are.
            records, data_bytes, _, _ = count(file.path, 0, LARGEST_SEGMENT)
            end = min(first + records, below)
            if end < first + records:
                data_bytes = file.position(end) or 0
            return Segment(first, end, data_bytes, size, file.entries, None, None, end)
        if end < known and not is_last:
            # The next one was begun behind it: what is wrong at its end is damage.
            return Segment(first, known, size, size, file.entries, file.base_ns, file.time_ns(known - 1), end)
        if end == first:
            return Segment(first, end, 0, size, file.entries, file.base_ns, None, end)
        at = file.position(end - 1) or 0
        data_bytes = at + (file.length_at(at) or 0)
        return Segment(first, end, data_bytes, size, file.entries, file.base_ns, file.time_ns(end - 1), end)


# ---------------------------------------------------------------------- records by offset and time


def segment_of(segments: Sequence[Bounds], offset: int) -> Bounds | None:
    """The segment that has an offset, or the first one behind it that has any; None: there is none yet."""
    at = bisect_right(segments, offset, key=lambda segment: segment[0]) - 1
    for index in range(max(at, 0), len(segments)):
        first, end, data_bytes = segments[index]
        if offset < end and first < end:
            return first, end, data_bytes
    return None


def locate(folder: str, segment: Bounds, offset: int) -> tuple[int, int] | None:
    """Position and length of a record; None: its length is damaged. Raises OSError."""
    with SegmentFile(folder, *segment) as file:
        return file.locate(offset)


def time_of(folder: str, segments: Sequence[Bounds], offset: int) -> int | None:
    """When a record was published, ns since 1970, up to 17 ms early; None: the index does not say. Raises OSError."""
    segment = segment_of(segments, offset)
    if segment is None:
        return None
    with SegmentFile(folder, *segment) as file:
        return file.time_ns(max(offset, segment[0]))


def offset_at(folder: str, segments: Sequence[Bounds], time_ns: int, offset: int = 0) -> int:
    """The first offset that was published at a time or after it, as closely as indexes have it: up to 17 ms early, or
    up to a whole segment whose index is damaged.

    Of the segments that begin at an offset or behind it; the next offset if there is none. Raises OSError.
    """
    low, high = bisect_left(segments, offset, key=lambda segment: segment[0]), len(segments)
    while low < high:
        middle = (low + high) // 2
        filled = next_filled(segments, middle, high)
        if filled == high or reached_in(folder, segments[filled], time_ns):
            high = middle
        else:
            low = filled + 1
    low = next_filled(segments, low, len(segments))
    if low == len(segments):
        return segments[-1][1] if segments else 0
    first, end, _ = segment = segments[low]
    with SegmentFile(folder, *segment) as file:
        while first < end:
            half = (first + end) // 2
            # A damaged entry says what the next one says, or the end, which is known: early rather than late.
            found = file.next_time_ns(half, end)
            if found is None or found[1] + TIME_UNIT > time_ns:
                end = half
            else:
                first = found[0] + 1
    return first


def next_filled(segments: Sequence[Bounds], at: int, end: int) -> int:
    """The index of the first segment from one on that has records; end: there is none before that."""
    while at < end and segments[at][0] == segments[at][1]:
        at += 1
    return at


def reached_in(folder: str, segment: Bounds, time_ns: int) -> bool:
    """Whether the last record of a segment may have been published at a time or after it."""
    with SegmentFile(folder, *segment) as file:
        found = file.time_ns(segment[1] - 1)
        return found is None or found + TIME_UNIT > time_ns


def with_following(files: LogFiles) -> list[tuple[Segment, int]]:
    """Each segment, and the first offset of the next one."""
    firsts = [segment.first for segment in files.segments[1:]]
    return list(zip(files.segments, [*firsts, UNBOUNDED], strict=False))
