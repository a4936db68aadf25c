from typing import final

from nsqc.client.chunk import Chunk

def direct_block(descriptor: int) -> int:
    """Alignment of positions and sizes for direct writes (O_DIRECT): whole pages, so that no page is written in both
    ways at once; 0 if the file system has no direct writes. If the kernel does not report it, the page size, and a
    write may still fail with EINVAL."""

@final
class Piece:
    """room: bytes; memory is allocated when first filled. The buffer protocol exports the contents, and a buffer
    reflects later changes: the memory does not move."""

    def __new__(cls, room: int) -> Piece: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def clear(self, start: int) -> None:
        """Empties it; the next byte goes start bytes after the beginning of a page."""

    def lines(self, bodies: Chunk, offsets: Chunk, start: int, stop: int) -> int:
        """Adds messages from start on, each with a newline, as many as fit and none from stop on; returns the row after
        the last. bodies, offsets: of a Batch. Raises IndexError for rows outside of it."""

    def put(self, data: bytes | memoryview) -> int:
        """Adds as many bytes as fit; returns their number."""
