"""Messages as lines, MPUBs and pieces of files. See the .pyi."""

from typing import final

from nsqc.client.frames import Chunk

# ====================================================================== lines

def lines(bodies: Chunk, offsets: Chunk, start: int, stop: int, prefix: bytes, suffix: bytes) -> bytes:
    """prefix, body and suffix of the messages from start to stop, concatenated. bodies, offsets: of a Batch.
    Raises IndexError for rows outside of it."""

def keep_memory() -> None:
    """Makes freed memory stay with the process, up to 128 MiB."""


# ====================================================================== cut

def cut(prefix: bytes, head: bytes, block: bytes | bytearray | memoryview, start: int, stop: int, delimiter: int,
        max_rows: int, max_bytes: int, max_message: int) -> tuple[bytes, int, int, bool]:
    """Complete lines of block[start:stop] as one command: (command, messages, where to continue, whether the next line
    is too large). A line ends with the byte delimiter; empty ones are skipped. The next line is too large if it has
    more than max_message bytes. prefix: the line of an MPUB, whose sizes are filled in; empty: each message gets head,
    the line of a DPUB, instead. Takes at most max_rows messages and max_bytes of bodies with their sizes, but at least
    one."""

def repack(prefix: bytes, bodies: Chunk, offsets: Chunk, start: int, max_rows: int,
           max_bytes: int) -> tuple[bytes, int]:
    """An MPUB of the messages of a Batch from start on, within the limits, but at least one: (command, index after the
    last). prefix: the line of the MPUB."""


# ====================================================================== piece

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
