from typing import final

from nsqc.client.chunk import Chunk

def direct_block(descriptor: int) -> int:
    """What places and sizes of writes past the page cache (O_DIRECT) have to be multiples of: whole pages, so that no
    page is written in both ways at a time; 0 if the file system has no such writes. Where the kernel does not tell, it
    is the page, and a write may still fail with EINVAL."""

@final
class Piece:
    """room: bytes; memory is taken as it is filled for the first time. The buffer protocol gives what is in it,
    and a buffer sees what changes later: the memory stays where it is."""

    def __new__(cls, room: int) -> Piece: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def clear(self, start: int) -> None:
        """Empties it; the next byte comes start bytes after the beginning of a page."""

    def lines(self, bodies: Chunk, offsets: Chunk, start: int, stop: int) -> int:
        """Adds messages from start on, each with a newline, as many as fit and none from stop on; the row after the
        last. bodies, offsets: of a Batch. Raises IndexError for rows that are not in it."""

    def put(self, data: bytes | memoryview) -> int:
        """Adds bytes, as many as fit; how many."""
