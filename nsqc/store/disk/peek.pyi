from typing import NamedTuple

from nsqc.store.disk.queue import DiskQueue
from nsqc.store.peek import Page

class Extent(NamedTuple):
    """Where the records of a queue lie: file numbers, and positions in them."""

    read: tuple[int, int]
    write: tuple[int, int]
    read_count: int  # records before the read position since the daemon's start
    write_count: int  # records before the write position
    max_record: int  # bytes of the largest record

class Records(NamedTuple):
    """Whole records of a file, one behind the other."""

    begin: int  # position of the first; what lies before it is damaged
    end: int  # behind the last; without records, where the data ends
    data: bytes  # empty: there are none

def extent(queue: DiskQueue) -> Extent: ...
def read(path: str, at: int, limit: int, max_record: int, want: int) -> Records:
    """About `want` bytes of records at or behind a position, one at least. For worker threads. Raises OSError.

    limit: the end of data; below 0: the file's own. max_record: bytes of the largest record.
    """

def add_buffered(queue: DiskQueue, page: Page, skip: int) -> tuple[int, bool]:
    """Adds records that are in no file yet, without the first `skip` of them.

    Returns how many have been added or left out, and whether these were all.
    """
