"""The progress of a log topic's channels, from its journal."""

from __future__ import annotations

from typing import NamedTuple

from nsqc.store.log.earlier import Earlier
from nsqc.store.log.names import SETTLED
from nsqc.store.log.recovery import read_folder

Ranges = list[tuple[int, int]]  # first, end; in order


class Waiting(NamedTuple):
    """A requeued or deferred message."""

    offset: int
    attempts: int
    due_ns: int  # since 1970; 0: at once


class Progress(NamedTuple):
    """The progress of one channel."""

    number: int
    name: str  # "": lost to damage
    cursor: int  # next offset never delivered
    out: Ranges  # below it, unfinished
    skips: Ranges  # at or ahead of it, skipped at delivery
    waiting: list[Waiting]  # in order; not in out; those ahead of the cursor are in skips

    @property
    def oldest(self) -> int:
        """The first unfinished offset."""
        firsts = [self.cursor]
        if self.out:
            firsts.append(self.out[0][0])
        if self.waiting:
            firsts.append(self.waiting[0].offset)
        return min(firsts)


class TopicProgress(NamedTuple):
    """The progress of all channels of a topic, and damage to its files."""

    channels: list[Progress]  # by number
    topic_cursor: int | None  # the first offset still hidden from channels
    files: list[tuple[str, bool]]  # names, and whether they are damaged
    damaged: int  # places with lost frames: finished messages may seem unfinished
    torn_bytes: int  # of an incomplete frame at the end of a file, as after a kill

    @property
    def named(self) -> dict[str, Progress]:
        """The channels by name."""
        return {channel.name: channel for channel in self.channels if channel.name and channel.name != SETTLED.decode()}


def read_progress(folder: str) -> TopicProgress:
    """Reads the journal in a topic's folder. Raises OSError."""
    return progress_of(read_folder(folder).earlier)


def progress_of(earlier: Earlier) -> TopicProgress:
    """Converts a journal that was read."""
    return TopicProgress(
        [Progress(number, name, cursor, out, skips, [Waiting(*entry) for entry in waiting])
         for number, name, cursor, out, skips, waiting in earlier.states()], earlier.topic_cursor,
        [(f"cursors.{number:06}", damaged) for number, damaged in earlier.files], earlier.damaged, earlier.torn_bytes)
