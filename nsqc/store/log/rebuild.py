"""The index of a segment made again: entries that are sound stay, the others come from the records.

A record keeps its offset wherever that can be told: between two sound entries, or if there is one gap of damage among
as many records as numbers are left. Where it cannot, records are numbered in order, and these numbers are unsure:
channels have to treat all of them as unfinished. So a message may come again, and none is left out.

Where an entry never reached the disk, nothing says whether its record did as a whole: between sound entries such a
message stays lost.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from nsqc.store.disk.segment import RECORD_HEAD_BYTES
from nsqc.store.log.files import UNBOUNDED, Segment
from nsqc.store.log.format import INDEX_ENTRY, INDEX_HEAD, TIME_UNIT, checksum
from nsqc.store.log.names import segment_path
from nsqc.store.log.progress import Ranges
from nsqc.store.log.scan import BAD_ENTRY, BAD_RECORD, BLANK, SOUND, find_records, scan_segment
from nsqc.store.log.segmentfile import ENTRY, MAGIC, MORE, SegmentFile

LATEST = 2**32 - 1  # time in an entry


class Slot(NamedTuple):
    """A message, or the place of one that is lost."""

    position: int
    end: int
    more: bool = False
    time: int | None = None  # as in its entry; None: from the record
    crc: int = 0
    timestamp: int = 0  # of the record, ns since 1970; 0: not read
    is_lost: bool = False
    is_made: bool = False  # from the record
    is_blank: bool = False  # its entry is


class Rebuilt(NamedTuple):
    """An index."""

    data: bytes
    end: int  # offset behind the last message
    bytes: int  # of the .dat up to there
    kept: int  # entries that were sound
    made: int  # entries that come from records
    lost: int  # messages
    unsure: Ranges  # offsets of records that may have had others


class Builder:
    """Makes the index of one segment."""

    def __init__(self, folder: str, segment: Segment, below: int, is_torn: bool = False):
        """below: the first offset of the next segment, or UNBOUNDED. is_torn: blank entries at the end never reached
        the disk, either."""
        self.segment = segment
        self.is_torn = is_torn
        self.below = below
        self.folder = folder
        self.dat = segment_path(folder, segment.first, "dat")
        self.slots: list[Slot] = []
        self.unsure: Ranges = []

    def build(self) -> Rebuilt:
        """Raises OSError."""
        segment, first = self.segment, self.segment.first
        known = min(segment.entries, self.below - first)
        runs: list[tuple[int, int, int]] = []
        if known:
            runs = scan_segment(self.dat, segment_path(self.folder, first, "idx"), first, first + known)[0]
        if lacks_entries(segment, self.below) and not self.is_torn:
            runs.append((BAD_ENTRY, first + known, self.below))
        runs = joined(runs)
        if all(kind in (BAD_ENTRY, BLANK) for kind, _, _ in runs) and segment.base_ns is None:
            # Nothing of the index is left, so it does not say how many messages there are.
            self._fill(None if self.below == UNBOUNDED else self.below - first, segment.size, True)
        else:
            with SegmentFile(self.folder, first, first + known, segment.size) as file:
                for kind, begin, end in runs:
                    is_tail = end == runs[-1][2]
                    following = None if is_tail else file.entry(end)
                    limit = segment.size if following is None else following.position
                    if kind in (BAD_RECORD, SOUND):
                        self._keep(file, begin, end, kind == BAD_RECORD)
                    elif kind == BLANK and (self.is_torn or not is_tail):
                        self._lose(end - begin, self.slots[-1].end if self.slots else 0, limit, True)
                    else:
                        self._fill(end - begin, limit, is_tail)
        self._cut()
        return self._finished()

    def _keep(self, file: SegmentFile, begin: int, end: int, is_lost: bool) -> None:
        """Messages with sound entries. Each record ends where the next one begins."""
        entries = list(ENTRY.iter_unpack(file.read_index(begin, end)))
        ends = [position & ~MORE for position, _, _, _ in entries[1:]]
        last = entries[-1][0] & ~MORE
        length = None if is_lost else file.length_at(last)
        if length is None:
            following = file.entry(end) if end < file.end else None
            length = following.position - last if following is not None else RECORD_HEAD_BYTES
        ends.append(last + length)
        for (position, time, crc, _), behind in zip(entries, ends, strict=True):
            self.slots.append(Slot(position & ~MORE, behind, bool(position & MORE), time, crc, is_lost=is_lost))

    def _fill(self, room: int | None, limit: int, is_tail: bool) -> None:
        """Messages from the records behind the last one: room of them (None: as many as there are), which end at limit.

        is_tail: nothing follows, so bytes at the end may be of a write that was interrupted, and there may be fewer.
        """
        at = self.slots[-1].end if self.slots else 0
        begin = self.segment.first + len(self.slots)
        records = find_records(self.dat, at, limit)
        gaps: dict[int, tuple[int, int]] = {}  # damage before the record of this number
        for number, (position, length, _, _) in enumerate(records):
            if position > at:
                gaps[number] = at, position
            at = position + length
        if not is_tail and at < limit:
            gaps[len(records)] = at, limit
        missing = 0 if room is None else room - len(records)
        if len(gaps) == 1 and not (is_tail and self.below == UNBOUNDED):
            (low, high), = gaps.values()
            is_sure = 0 < missing <= (high - low) // RECORD_HEAD_BYTES
        else:
            is_sure = not gaps and (missing == 0 or is_tail)
        first_gap = min(gaps, default=0)
        for number in range(len(records) + 1):
            if number in gaps:
                lost = missing if is_sure else 1
                self._lose(min(lost, max(missing, 0) if room is not None else 1), *gaps[number])
                if not is_sure and room is not None:
                    missing -= 1
            if number < len(records):
                position, length, timestamp, crc = records[number]
                self.slots.append(Slot(position, position + length, crc=crc, timestamp=timestamp, is_made=True))
        if room is not None:
            del self.slots[begin - self.segment.first + room:]
            if not is_tail:
                self._lose(begin - self.segment.first + room - len(self.slots), limit, limit)
        unsure = begin + first_gap, self.segment.first + len(self.slots)
        if not is_sure and unsure[0] < unsure[1]:
            self.unsure.append(unsure)

    def _lose(self, count: int, low: int, high: int, is_blank: bool = False) -> None:
        """Places of messages between two positions. As entries are in order, each has its own, if there are enough."""
        for number in range(count):
            position = min(low + number * RECORD_HEAD_BYTES, high)
            following = high if number + 1 == count else min(position + RECORD_HEAD_BYTES, high)
            self.slots.append(Slot(position, following, is_lost=True, is_made=True, is_blank=is_blank))

    def _cut(self) -> None:
        """The end is not that of a message that is lost, unless the next segment begins right there, nor within a
        batch. If there is a next segment, that batch was acknowledged, and ends with what is left of it."""
        if self.segment.first + len(self.slots) == self.below:
            return
        while self.slots and (self.slots[-1].is_lost or (self.slots[-1].more and self.below == UNBOUNDED)):
            self.slots.pop()
        if self.slots:
            self.slots[-1] = self.slots[-1]._replace(more=False)

    def _finished(self) -> Rebuilt:
        base, first, end = self._base(), self.segment.first, self.segment.first + len(self.slots)
        head = struct.pack(">8sqqI", MAGIC, first, base, 0)
        out, time = bytearray(head + struct.pack(">I", checksum(head))), 0
        for offset, slot in enumerate(self.slots, first):
            if slot.time is not None:
                time = slot.time
            elif slot.timestamp:
                time = min(max((slot.timestamp - base) // TIME_UNIT, time), LATEST)
            fields = struct.pack(">III", slot.position | slot.more << 31, time, slot.crc)
            check = struct.pack(">I", checksum(struct.pack(">q", offset) + fields))
            out += bytes(INDEX_ENTRY) if slot.is_blank else fields + check
        assert len(out) == INDEX_HEAD + INDEX_ENTRY * len(self.slots) and MORE == 1 << 31
        made = sum(slot.is_made and not slot.is_lost for slot in self.slots)
        lost = sum(slot.is_lost for slot in self.slots)
        unsure = [(low, min(high, end)) for low, high in self.unsure if low < end]
        data_bytes = self.slots[-1].end if self.slots else 0
        return Rebuilt(bytes(out), end, data_bytes, len(self.slots) - made - lost, made, lost, unsure)

    def _base(self) -> int:
        """The base time: that of the head, or one that fits the first record."""
        if self.segment.base_ns is not None:
            return self.segment.base_ns
        for slot in self.slots:
            if slot.timestamp:
                return slot.timestamp
            if slot.time is not None and not slot.is_lost:
                (record, *_) = find_records(self.dat, slot.position, slot.end) or [(0, 0, 0, 0)]
                if record[2]:
                    return record[2] - slot.time * TIME_UNIT
        return 0


def lacks_entries(segment: Segment, below: int) -> bool:
    """Whether the index of a segment that was complete when the next one began has lost its end: there is more data
    than its entries tell of, and there are offsets for it."""
    return below != UNBOUNDED and segment.first + segment.entries < below and segment.bytes < segment.size


def has_bad_entries(segment: Segment, runs: list[tuple[int, int, int]]) -> bool:
    """Whether scan_segment() has found entries that can be made again: damaged ones, or blank ones at the end."""
    is_blank = bool(runs) and runs[-1][0] == BLANK and runs[-1][2] > segment.intact
    return is_blank or any(kind == BAD_ENTRY for kind, _, _ in runs)


def joined(runs: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Runs of scan_segment() with damaged and blank entries side by side as one: blank, if any of them is."""
    found: list[tuple[int, int, int]] = []
    for kind, begin, end in runs:
        if found and kind in (BAD_ENTRY, BLANK) and found[-1][0] in (BAD_ENTRY, BLANK):
            kind, begin = BLANK, found.pop()[1]
        found.append((kind, begin, end))
    return found
