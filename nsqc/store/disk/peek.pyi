from typing import NamedTuple

from nsqc.store.disk.queue import DiskQueue
from nsqc.store.peek import Page

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
