from nsqc.client.chunk import Chunk

def lines(bodies: Chunk, offsets: Chunk, start: int, stop: int, prefix: bytes, suffix: bytes) -> bytes:
    """prefix, body and suffix of the messages from start to stop, one after the other. bodies, offsets: of a Batch.
    Raises IndexError for rows that are not in it."""

def keep_memory() -> None:
    """Has freed memory stay with the process, up to 128 MiB."""
