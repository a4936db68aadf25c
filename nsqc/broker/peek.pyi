from typing import NamedTuple

from nsqc.broker.channel import Channel
from nsqc.broker.topic import Topic
from nsqc.store.peek import FifoPeek, HeapPeek, Page

class Unread(NamedTuple):
    """Offsets of a log that wait."""

    first: int
    end: int

def add_leftover(topic: Topic, page: Page) -> None:
    """Adds the message that not all channels have got yet, if there is one."""

def in_memory(queue: Topic | Channel, at: int) -> FifoPeek:
    """Goes through what waits in memory, from a number on."""

def add_front(channel: Channel, page: Page, at: int) -> tuple[list[int], int]:
    """Adds what an ordered channel delivers before all else, from the at-th on: their offsets (below 0: not in a log),
    and where to continue; below 0: that is all."""

def add_again(channel: Channel, page: Page, number: int) -> tuple[list[int], int]:
    """Adds what came back to a channel with message_ttl and waits, likewise: each has a number, in order."""

def held(channel: Channel, in_flight: bool, after_ns: int, after_tie: bytes, most: int) -> HeapPeek:
    """Looks for messages in flight, or deferred, behind a place in the order of their due times."""

def delays(queue: Topic | Channel) -> dict[bytes, int]:
    """Delays of messages on disk, which the caller must not change: of a topic milliseconds, which have not begun; of a
    channel due times, ns since 1970."""

def requeued(channel: Channel, at: int, most: int) -> tuple[list[tuple[int, int]], int]:
    """Messages of the log that wait again, from a number on: offset and attempts of each; and the next number."""

def unread(queue: Topic | Channel) -> Unread:
    """What a channel has not been given yet of the log, or of a topic what no channel may have yet."""

def due_of(channel: Channel, offset: int) -> int:
    """Of an unread offset: its due time (monotonic ns) if it is deferred; 0: it waits; below 0: it is finished."""

def log_first(channel: Channel) -> bool:
    """Whether the log is delivered before what waits in memory and on disk."""

def clock_shift(queue: Topic | Channel) -> int:
    """What to add to a monotonic time for the wall clock, ns."""
