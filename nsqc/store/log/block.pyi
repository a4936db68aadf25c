from typing import final

from nsqc.store.log.recovery import SegmentState

MEDIA_TYPE: str         # of frames, in HTTP
VALUE: int
TIMESTAMP: int
ID: int
OFFSET: int
ORIGIN: int
FRAME_MOST: int         # bytes of the largest frame, unless one record is larger
FRAME_MORE: int         # most bytes of a frame with one record, excluding its body

@final
class LogBlock:
    """The records first to end - 1 of the frames in the first `length` bytes of data. Iterating returns (offset, time
    in nanoseconds since 1970, id, body, origin) of each record not returned yet. The origin of a dead letter is a
    JSON object; others have None.

    salt: of the segment. position: of the first byte of data in it. Data must not change while the block is in use.
    Raises ValueError unless the data is sound, consecutive frames with exactly these records. Without a length, data
    is still arriving: more() and complete() check it.
    """

    def __init__(self, data: bytes | bytearray, length: int | None, salt: int, position: int, first: int,
                 end: int) -> None: ...
    def more(self, length: int) -> None:
        """Takes the number of arrived bytes; checks whole frames while caches have them. Raises ValueError."""

    def complete(self, length: int) -> None:
        """Ends the data. Raises ValueError unless it ends with a frame and has all the records."""

    @property
    def first(self) -> int: ...
    @property
    def next(self) -> int: ...
    @property
    def largest(self) -> int:
        """Bytes of the largest body."""

    def batch(self, max_rows: int, max_bytes: int,
              wanted: int) -> tuple[int, bytes, bytes, bytes, bytes, bytes, list[str | None] | None] | None:
        """The next records as columns for Arrow: (count, bodies, body offsets, timestamps, ids, offsets, origins); None
        at the end. At least one record; otherwise at most max_rows, and max_bytes of bodies.

        wanted: the sum of VALUE, TIMESTAMP, ID, OFFSET, ORIGIN; other columns are empty. Origins are None if no record
        has one. Body offsets are int32, one more than records; timestamps int64 in microseconds; ids 16 bytes each;
        offsets int64.
        """

    def lines(self, most: int, prefix: bytes, suffix: bytes) -> tuple[bytes, int]:
        """(text, count): prefix, body and suffix of the next records, up to `most`."""

    def __iter__(self) -> LogBlock: ...
    def origins(self, rows: int) -> list[str | None] | None:
        """The origins of the next `rows` records; None: no record has one."""

    def __next__(self) -> tuple[int, int, str, bytes, str | None]: ...

@final
class BlockMemory:
    """The result of a read."""

@final
class SegmentBlocks:
    """Reads blocks from the files of segments, into memory that the next read reuses."""

    def read(self, file: int, segment: tuple[int, int, int, int] | SegmentState, offset: int, end: int,
             max_bytes: int) -> LogBlock | None:
        """Records from an offset to before another, at least one, and about max_bytes of frames; None if the record
        is unreadable.

        file: a descriptor of the segment. segment: first offset, offset after the last record, end of its frames, salt.
        """

def manifest_id(data: bytes) -> int | None:
    """The id of a log, from the bytes of its manifest; None if they are damaged."""
