from typing import NamedTuple

class Sound(NamedTuple):
    """Intact records that lie one behind the other, and how many are lost before them."""

    first: int          # offset of the first
    next: int           # offset behind the last
    start: int          # position of the first in the segment
    end: int            # position behind the last
    damaged: int        # records before the first that are not intact
    lines: int          # bytes of their lines of JSON; 0 unless asked for

def sound(data: int, index: int, segment: tuple[int, int, int], offset: int, max_messages: int, max_bytes: int,
          as_lines: bool) -> Sound:
    """The first run of intact records from an offset on, checked against their index entries. Raises OSError.

    data, index: descriptors of a segment and of its index. segment: the offset of its first record, the offset behind
    its last one, and the bytes of its records. One record is returned whatever max_bytes is, so max_messages has to be
    above 0. Without an intact record, first is next.
    """

def not_before(data: int, index: int, segment: tuple[int, int, int], offset: int, time_ns: int) -> int:
    """The first offset from one on whose record was published at a time or after it; the end, if there is none.

    If the clock was set back, also the first one behind such a record. The arguments are those of sound().
    """

def next_time(index: int, segment: tuple[int, int, int], offset: int, end: int) -> tuple[int, int] | None:
    """The first sound index entry from an offset on, up to another: its offset, and its time in units since the base
    time of the segment; None: there is none. Raises OSError."""

def timestamp(data: int, index: int, segment: tuple[int, int, int], offset: int) -> int | None:
    """When the first intact record from an offset on was published, in ns since 1970; None: there is none.

    The arguments are those of sound().
    """
