from nsqc.client.chunk import Chunk

def lines(bodies: Chunk, offsets: Chunk, start: int, stop: int, prefix: bytes, suffix: bytes) -> bytes:
    """prefix, body and suffix of the messages from start to stop, concatenated. bodies, offsets: of a Batch.
    Raises IndexError for rows outside of it."""

def keep_memory() -> None:
    """Makes freed memory stay with the process, up to 128 MiB."""
