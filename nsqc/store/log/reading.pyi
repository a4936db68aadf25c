"""Reading a log: one frame reader for cursors, HTTP, Spark and tools. See the .pxd."""

from typing import NamedTuple, final

from nsqc.store.log.names import Segment

# ====================================================================== reading

class Run(NamedTuple):
    """Consecutive valid frames, and which of their records are wanted."""

    first: int          # offset of the first record
    next: int           # after the last
    start: int          # position of the first frame
    end: int            # after the last
    last: int           # position of the last frame
    damaged: int        # lost records before the first
    lines: int          # bytes of the records as lines of JSON; 0 unless asked for

def find_run(fd: int, segment: Segment, offset: int, position: int, max_messages: int, max_bytes: int,
             as_lines: bool) -> Run:
    """Finds the first run of frames from an offset on. Raises OSError.

    fd: of the segment. position: of a frame at or before the offset; 0: unknown. max_bytes: of frames, at least one;
    as lines, of records, at least one. Without a valid frame, first equals next.
    """

def records(fd: int, segment: Segment, offset: int, position: int, end: int, most_bytes: int, as_lines: bool,
            ) -> tuple[int, int, int, bytes]:
    """Records from an offset to before another: about most_bytes of them, at least one, and none after a gap.

    As lines of JSON, or in the format of disk queues. Raises OSError.

    position: as in find_run(). Returns the offsets of the first record and after the last, the position for the
    latter, and the records.
    """

def origins(fd: int, segment: Segment, offset: int, position: int, end: int) -> dict[int, bytes]:
    """The origins of dead letters from an offset to before another, by offset: JSON objects. Raises OSError."""

def first_at(fd: int, segment: Segment, time_ns: int) -> int:
    """The first offset with this publish time or a later one; the end of the segment if none. Raises OSError."""

def time_of(fd: int, segment: Segment, offset: int, position: int) -> int | None:
    """Publish time of the first record from an offset on, in ns since 1970; None: no record. Raises OSError."""


# ====================================================================== block

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

    def read(self, file: int, segment: Segment, offset: int, end: int,
             max_bytes: int) -> LogBlock | None:
        """Records from an offset to before another, at least one, and about max_bytes of frames; None if the record
        is unreadable.

        file: a descriptor of the segment.
        """

def whole_batches(data: bytes, salt: int, position: int) -> tuple[int, int]:
    """(bytes, the offset after the last record) of the whole batches of frames at the beginning of data, which lay at a
    position of a segment; 0 bytes: there is none."""

def manifest_id(data: bytes) -> int | None:
    """The id of a log, from the bytes of its manifest; None if they are damaged."""
