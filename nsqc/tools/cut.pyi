from nsqc.client.chunk import Chunk

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
