"""Looks at waiting messages without taking them: memory, disk queues, logs. See the .pyi."""

from typing import NamedTuple, Never, final

from nsqc.store.disk.queue import DiskQueue

# ====================================================================== peek

class Seen(NamedTuple):
    """A message as a page shows it."""

    id: bytes
    timestamp: int  # ns since 1970
    attempts: int
    size: int  # of the body, bytes
    body: bytes  # its beginning
    defer_ms: int  # of a message in a topic: its delay, not started yet

class Held(NamedTuple):
    """A message in flight or deferred."""

    due_ns: int  # monotonic
    tie: bytes  # breaks ties of the due time
    seen: Seen | None  # None: it is in the log, at `offset`
    attempts: int
    offset: int  # below 0: not from a log
    delivered_ns: int  # monotonic; in flight
    owner: int  # id of the consumer; 0: deferred

@final
class Page:
    def __init__(self, most: int, body_bytes: int, room: int) -> None:
        """Limits: the number of messages, bytes per body, and total bytes; the first message always fits."""

    @property
    def messages(self) -> list[Seen]: ...
    @property
    def left(self) -> int: ...
    @property
    def room(self) -> int: ...
    @property
    def full(self) -> bool:
        """Whether not even an empty message fits."""

    def add_records(self, data: bytes, at: int = 0, skip: int = 0) -> tuple[int, int]:
        """Adds whole records of a file, from a position in data on, omitting the first `skip`.

        Returns the position after the last record processed, and how many are still to be skipped.
        """

@final
class FifoPeek:
    """Made by nsqc.broker.survey."""

    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    def run(self, page: Page) -> bool:
        """Adds messages for one slice; False: more remain for this page."""

    @property
    def at(self) -> int:
        """The number of the next message."""

    @property
    def ended(self) -> bool:
        """Whether the queue is empty."""

@final
class HeapPeek:
    """Made by nsqc.broker.survey."""

    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    def run(self) -> bool:
        """Searches for one slice; False: not finished."""

    def held(self, page: Page) -> list[Held]:
        """The messages found, in order, as far as the page has room; those of a log without their bodies."""

    @property
    def beyond(self) -> bool:
        """Whether more exist than were requested."""


# ====================================================================== peek

class Extent(NamedTuple):
    """Extent of a queue's records: file numbers, and positions in them."""

    read: tuple[int, int]
    write: tuple[int, int]
    read_count: int  # records before the read position since the daemon's start
    write_count: int  # records before the write position
    max_record: int  # bytes of the largest record

class Records(NamedTuple):
    """Consecutive whole records of a file."""

    begin: int  # position of the first; data before it is damaged
    end: int  # after the last; without records, where the data ends
    data: bytes  # empty: no records

def extent(queue: DiskQueue) -> Extent: ...
def read(path: str, at: int, limit: int, max_record: int, want: int) -> Records:
    """About `want` bytes of records at or after a position, at least one. For worker threads. Raises OSError.

    limit: the end of data; below 0: the file's own. max_record: bytes of the largest record.
    """

def add_buffered(queue: DiskQueue, page: Page, skip: int) -> tuple[int, bool]:
    """Adds records that are not in a file yet, without the first `skip` of them.

    Returns the number of records added or skipped, and whether these were all.
    """
