from typing import NamedTuple

from nsqc.store.log.names import Bounds

class Run(NamedTuple):
    """Consecutive valid frames, and which of their records are wanted."""

    first: int          # offset of the first record
    next: int           # after the last
    start: int          # position of the first frame
    end: int            # after the last
    last: int           # position of the last frame
    damaged: int        # lost records before the first
    lines: int          # bytes of the records as lines of JSON; 0 unless asked for

def find_run(fd: int, segment: Bounds, offset: int, position: int, max_messages: int, max_bytes: int,
             as_lines: bool) -> Run:
    """Finds the first run of frames from an offset on. Raises OSError.

    fd: of the segment. position: of a frame at or before the offset; 0: unknown. max_bytes: of frames, at least one;
    as lines, of records, at least one. Without a valid frame, first equals next.
    """

def records(fd: int, segment: Bounds, offset: int, position: int, end: int, most_bytes: int, as_lines: bool,
            ) -> tuple[int, int, int, bytes]:
    """Records from an offset to before another: about most_bytes of them, at least one, and none after a gap.

    As lines of JSON, or in the format of disk queues. Raises OSError.

    position: as in find_run(). Returns the offsets of the first record and after the last, the position for the
    latter, and the records.
    """

def origins(fd: int, segment: Bounds, offset: int, position: int, end: int) -> dict[int, bytes]:
    """The origins of dead letters from an offset to before another, by offset: JSON objects. Raises OSError."""

def first_at(fd: int, segment: Bounds, time_ns: int) -> int:
    """The first offset with this publish time or a later one; the end of the segment if none. Raises OSError."""

def time_of(fd: int, segment: Bounds, offset: int, position: int) -> int | None:
    """Publish time of the first record from an offset on, in ns since 1970; None: no record. Raises OSError."""
