"""Files that have names of segments, and are not of the log: they are left alone and reported."""

from __future__ import annotations

from contextlib import suppress

from nsqc.store.log.names import MOST_OFFSET

# No log comes to this offset by itself. If a name has led it there, as many offsets are left; one beyond needs a proof.
FARTHEST = 2**61


def is_stray(folder: str, first: int) -> bool:
    """Whether a segment that begins with this offset, as names of files say, is not of the log in the folder."""
    return first > FARTHEST and (first > MOST_OFFSET or not has_index(folder, first))


def has_index(folder: str, first: int) -> bool:
    """Whether the index of a segment begins as it has to."""
    from nsqc.store.log.segmentfile import SegmentFile  # here: as a rule no name is so large

    with suppress(OSError), SegmentFile(folder, first, first, 0) as file:
        return file.base_ns is not None
    return False
