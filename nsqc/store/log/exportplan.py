"""Plans nsqd's queues for a log-backed topic: the unfinished messages of a channel, in the order of delivery."""

from __future__ import annotations

from typing import NamedTuple

from nsqc.store.log.names import segment_path
from nsqc.store.log.offline import read_frames
from nsqc.store.log.progress import Ranges
from nsqc.store.log.summary import Backlog, Log, count, overlap, without


class Chunk(NamedTuple):
    """Messages to copy: all sound, and from one segment."""

    first: int
    end: int
    attempts: int


class QueuePlan(NamedTuple):
    """A queue for nsqd."""

    name: str  # TOPIC or TOPIC:CHANNEL
    chunks: list[Chunk]
    messages: int
    lost: int  # unfinished and damaged
    deferred: int  # not due yet
    bytes: int  # estimated size of the copies


class Sources:
    """The sound messages of a log. Reads each of them once."""

    def __init__(self, log: Log):
        self.log = log
        self.sound: Ranges = []
        self._bytes = 0
        for segment in log.segments:
            _, size, damage = read_frames(segment_path(log.folder, segment.first), segment)
            self.sound += without([(segment.first, segment.end)], [(first, end) for _, first, end in damage])
            self._bytes += size

    def bytes_of(self, messages: int) -> int:
        """Estimates the bytes of this many messages in files of disk queues."""
        return self._bytes * messages // max(count(self.sound), 1)


def plan_queue(name: str, sources: Sources, backlog: Backlog, now_ns: int) -> QueuePlan:
    """First delivered and waiting messages, then undelivered ones, each by offset."""
    again = [Chunk(first, end, 1) for first, end in overlap(backlog.out, sources.sound)]
    waiting = [(offset, offset + 1) for offset in backlog.waiting]
    again += [Chunk(first, end, backlog.waiting[first].attempts) for first, end in overlap(waiting, sources.sound)]
    chunks = sorted(again) + [Chunk(first, end, 0) for first, end in overlap(backlog.ahead, sources.sound)]
    messages = sum(chunk.end - chunk.first for chunk in chunks)
    wanted = count(backlog.out) + len(backlog.waiting) + count(backlog.ahead)
    deferred = sum(entry.due_ns > now_ns for entry in backlog.waiting.values())
    deferred += sum(1 for first, end in backlog.ahead for offset, due_ns in sources.log.due.items()
                    if first <= offset < end and due_ns > now_ns)
    return QueuePlan(name, chunks, messages, wanted - messages, deferred, sources.bytes_of(messages))
