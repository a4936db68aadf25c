"""Numbers of all topics and channels, and looks at their messages, in slices. See the .pxd."""

from collections.abc import Callable
from typing import NamedTuple, final

from nsqc.broker.broker import Broker
from nsqc.broker.channel import Channel
from nsqc.broker.topic import Topic
from nsqc.metrics.table import Table
from nsqc.store.peek import FifoPeek, HeapPeek, Page

# ====================================================================== survey

TOPIC_COLUMNS: tuple[str, ...]
CHANNEL_COLUMNS: tuple[str, ...]

@final
class Survey:
    def __init__(self, broker: Broker, done: Callable[[], object]) -> None: ...
    @property
    def topics(self) -> Table: ...
    @property
    def channels(self) -> Table: ...
    @property
    def topic_count(self) -> int: ...
    @property
    def channel_count(self) -> int: ...
    @property
    def queue_bytes(self) -> int: ...
    @property
    def failure(self) -> Exception | None: ...
    def start(self) -> None: ...


# ====================================================================== peek

class Unread(NamedTuple):
    """Waiting offsets of a log."""

    first: int
    end: int

def add_leftover(topic: Topic, page: Page) -> None:
    """Adds the message that some channels still lack, if there is one."""

def in_memory(queue: Topic | Channel, at: int) -> FifoPeek:
    """Iterates over messages that wait in memory, from a number on."""

def add_front(channel: Channel, page: Page, at: int) -> tuple[list[int], int]:
    """Adds the deliveries that an ordered channel makes first, from the at-th on: their offsets (below 0: not in a
    log), and where to continue; below 0: the end."""

def add_again(channel: Channel, page: Page, number: int) -> tuple[list[int], int]:
    """Likewise adds requeued messages that wait in a channel with message_ttl: each has a number, in order."""

def held(channel: Channel, in_flight: bool, after_ns: int, after_tie: bytes, most: int) -> HeapPeek:
    """Looks for messages in flight, or deferred, after a position in the order of their due times."""

def delays(queue: Topic | Channel) -> dict[bytes, int]:
    """Delays of messages on disk, which the caller must not change: of a topic, milliseconds that have not begun; of a
    channel, due times in ns since 1970."""

def requeued(channel: Channel, at: int, most: int) -> tuple[list[tuple[int, int]], int]:
    """Requeued messages of the log, from a number on: offset and attempts of each; and the next number."""

def unread(queue: Topic | Channel) -> Unread:
    """Records of the log that a channel has not received; for a topic, those hidden from all channels."""

def due_of(channel: Channel, offset: int) -> int:
    """Of an unread offset: its due time (monotonic ns) if deferred; 0: it waits; below 0: finished."""

def log_first(channel: Channel) -> bool:
    """Whether the log is delivered before messages in memory and on disk."""

def clock_shift(queue: Topic | Channel) -> int:
    """Add this to a monotonic time to get the wall clock, ns."""
