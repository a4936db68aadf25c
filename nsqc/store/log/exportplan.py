"""Which files nsqd's queues get from a log topic: whole segments where a queue needs all of them, copies elsewhere.

A queue of nsqd is a row of files and one position to begin at. So a segment that a channel has read in part can be
linked only if nothing comes before it; what was delivered or waits, and is not finished, is copied to the front.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from nsqc.store.log.files import Segment, locate, with_following
from nsqc.store.log.names import segment_path
from nsqc.store.log.progress import Ranges
from nsqc.store.log.rebuild import has_bad_entries, lacks_entries
from nsqc.store.log.scan import SOUND, scan_segment
from nsqc.store.log.summary import Backlog, Log, count

MOST_COPIED = 16 << 20  # of a segment that is read in part: beyond that it comes first, and the copies behind it
FILE_BYTES = 100 << 20  # of a file with copies


class Chunk(NamedTuple):
    """Records that are copied."""

    segment: Segment
    first: int
    end: int
    attempts: int


class Part(NamedTuple):
    """A file of a queue: a segment (a link, or a copy of the whole), or copies of records."""

    segment: Segment | None
    chunks: list[Chunk]


@dataclass
class QueuePlan:
    """A queue of nsqd."""

    name: str  # TOPIC or TOPIC:CHANNEL
    parts: list[Part] = field(default_factory=list)
    read_at: int = 0  # in the first part
    messages: int = 0
    lost: int = 0  # unfinished, and damaged
    deferred: int = 0  # would have been due later
    copied: int = 0  # bytes, at most, without those of segments
    linked: int = 0  # bytes of whole segments


class Sources:
    """The sound records of a log's segments. Reads all of them, each once."""

    def __init__(self, log: Log):
        self.log = log
        self.segments = [segment for segment in log.files.segments if segment.first < segment.end]
        self.sound: Ranges = []
        self.clean: set[int] = set()  # first offsets of segments that are nothing but sound records
        self.unindexed: list[str] = []  # indexes without which intact messages cannot be told: repair makes them again
        for segment, below in with_following(log.files):
            sound, has_index = look_at(log.files.folder, segment, below)
            self.sound += sound
            if not has_index:
                self.unindexed.append(segment_path(log.files.folder, segment.first, "idx"))
            if sound == [(segment.first, segment.end)] and segment.size == segment.bytes:
                self.clean.add(segment.first)

    def parts_of(self, first: int, end: int) -> list[tuple[Segment, int, int]]:
        """A range of offsets, by segments."""
        return [(segment, max(first, segment.first), min(end, segment.end))
                for segment in self.segments if segment.first < end and first < segment.end]

    def bytes_of(self, chunk: Chunk) -> int:
        """That its records take."""
        folder = self.log.files.folder
        begin, last = (locate(folder, chunk.segment.bounds, offset) for offset in (chunk.first, chunk.end - 1))
        return sum(last) - begin[0] if begin and last else 0


def look_at(folder: str, segment: Segment, below: int) -> tuple[Ranges, bool]:
    """The offsets of a segment whose records are sound, and whether its index tells of all that are. Raises OSError."""
    if (segment.base_ns is None and segment.size) or lacks_entries(segment, below):
        return [], False
    known = min(segment.first + segment.entries, below)
    if known == segment.first:
        return [], True
    dat, idx = segment_path(folder, segment.first, "dat"), segment_path(folder, segment.first, "idx")
    runs, _ = scan_segment(dat, idx, segment.first, known)
    sound = [(first, end) for kind, first, end in runs if kind == SOUND]
    return overlap(sound, [(segment.first, segment.end)]), not has_bad_entries(segment, runs)


def overlap(ranges: Ranges, others: Ranges) -> Ranges:
    """The offsets in both; each is in order."""
    found, at = [], 0
    for first, end in ranges:
        while at < len(others) and others[at][1] <= first:
            at += 1
        following = at
        while following < len(others) and others[following][0] < end:
            found.append((max(first, others[following][0]), min(end, others[following][1])))
            following += 1
    return found


def plan_queue(name: str, sources: Sources, backlog: Backlog, appends: bool, now_ns: int) -> QueuePlan:
    """appends: the queue has messages in nsqd's form already, which come first."""
    plan = QueuePlan(name)
    due = sources.log.due
    plan.deferred = sum(entry.due_ns > now_ns for entry in backlog.waiting.values())
    plan.deferred += sum(1 for first, end in backlog.ahead for offset, when in due.items()
                         if first <= offset < end and when > now_ns)
    front = front_chunks(sources, backlog)
    sound_ahead = overlap(backlog.ahead, sources.sound)
    wanted = count(backlog.out) + len(backlog.waiting) + count(backlog.ahead)
    plan.messages = sum(chunk.end - chunk.first for chunk in front) + count(sound_ahead)
    plan.lost = wanted - plan.messages
    parts, begins_at = ahead_parts(sources, sound_ahead)
    if begins_at:
        whole = parts[0].segment
        assert whole is not None
        rest = whole.bytes - begins_at
        if appends or (front and rest <= MOST_COPIED):
            first = sound_ahead[0][0]
            parts[0] = Part(None, [Chunk(whole, first, whole.end, 0)])
        else:
            plan.read_at = begins_at
    if front:
        copies = in_files(sources, front)
        parts = [*parts, *copies] if plan.read_at else [*copies, *parts]
    plan.parts = parts
    plan.linked = sum(part.segment.bytes for part in parts if part.segment is not None)
    plan.copied = sum(sources.bytes_of(chunk) for part in parts for chunk in part.chunks)
    return plan


def front_chunks(sources: Sources, backlog: Backlog) -> list[Chunk]:
    """What was delivered or waits, in the order of offsets."""
    ranges = [(first, end, 1) for first, end in backlog.out]
    ranges += [(entry.offset, entry.offset + 1, entry.attempts) for entry in backlog.waiting.values()]
    chunks = []
    for first, end, attempts in sorted(ranges):
        for low, high in overlap([(first, end)], existing_sound(sources, first, end)):
            chunks += [Chunk(segment, begin, stop, attempts) for segment, begin, stop in sources.parts_of(low, high)]
    return chunks


def existing_sound(sources: Sources, first: int, end: int) -> Ranges:
    """Sound offsets near a range."""
    low, high = 0, len(sources.sound)
    while low < high:
        middle = (low + high) // 2
        if sources.sound[middle][1] <= first:
            low = middle + 1
        else:
            high = middle
    found = []
    while low < len(sources.sound) and sources.sound[low][0] < end:
        found.append(sources.sound[low])
        low += 1
    return found


def ahead_parts(sources: Sources, ahead: Ranges) -> tuple[list[Part], int]:
    """The files for what has not been delivered, and where to begin in the first, if that is a segment read in part."""
    parts: list[Part] = []
    begins_at = 0
    for segment in sources.segments:
        ranges = overlap(ahead, [(segment.first, segment.end)])
        if not ranges:
            continue
        (first, end), *more = ranges
        is_rest = not more and end == segment.end and segment.first in sources.clean
        if is_rest and first == segment.first:
            parts.append(Part(segment, []))
        elif is_rest and not parts:
            located = locate(sources.log.files.folder, segment.bounds, first)
            begins_at = located[0] if located else 0
            parts.append(Part(segment, []))
        else:
            chunks = [Chunk(segment, low, high, 0) for low, high in ranges]
            parts += in_files(sources, chunks)
    return parts, begins_at


def in_files(sources: Sources, chunks: list[Chunk]) -> list[Part]:
    """Copies in files of a bounded size; a chunk is of one segment, and those are not larger than a file may be."""
    parts: list[Part] = []
    size = 0
    for chunk in chunks:
        taken = sources.bytes_of(chunk)
        if not parts or size + taken > FILE_BYTES:
            parts.append(Part(None, []))
            size = 0
        parts[-1].chunks.append(chunk)
        size += taken
    return parts

