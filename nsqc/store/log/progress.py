"""How far the channels of a log topic are, as its journal says."""

from __future__ import annotations

from typing import NamedTuple

from nsqc.store.log.earlier import Earlier
from nsqc.store.log.names import SETTLED
from nsqc.store.log.recovery import read_folder

Ranges = list[tuple[int, int]]  # first, end; in order


class Waiting(NamedTuple):
    """A message that was requeued or deferred."""

    offset: int
    attempts: int
    due_ns: int  # since 1970; 0: at once


class Progress(NamedTuple):
    """Of one channel."""

    number: int
    name: str  # "": lost to damage
    cursor: int  # next offset never delivered
    out: Ranges  # below it, unfinished
    skips: Ranges  # at or ahead of it, not to be delivered
    waiting: list[Waiting]  # in order; none of them is in out, and those ahead of the cursor are in skips

    @property
    def oldest(self) -> int:
        """The first offset that is not finished."""
        firsts = [self.cursor]
        if self.out:
            firsts.append(self.out[0][0])
        if self.waiting:
            firsts.append(self.waiting[0].offset)
        return min(firsts)


class TopicProgress(NamedTuple):
    """Of all channels of a topic, and what of their files could not be read."""

    channels: list[Progress]  # by number
    topic_cursor: int | None  # the first offset that is not for the channels yet
    files: list[tuple[str, bool]]  # names, and whether they are damaged
    damaged: int  # places where frames are lost: messages that were finished may seem not to be
    torn_bytes: int  # of an incomplete frame at the end of a file: a kill leaves one

    @property
    def named(self) -> dict[str, Progress]:
        """The channels by name."""
        return {channel.name: channel for channel in self.channels if channel.name and channel.name != SETTLED.decode()}


def read_progress(folder: str) -> TopicProgress:
    """What the files in a topic's folder say. Raises OSError."""
    return progress_of(read_folder(folder).earlier)


def progress_of(earlier: Earlier) -> TopicProgress:
    """What was read of the journal."""
    return TopicProgress(
        [Progress(number, name, cursor, out, skips, [Waiting(*entry) for entry in waiting])
         for number, name, cursor, out, skips, waiting in earlier.states()], earlier.topic_cursor,
        [(f"cursors.{number:06}", damaged) for number, damaged in earlier.files], earlier.damaged, earlier.torn_bytes)
