"""Offsets between two segments: left out by numbering, or lost with a segment."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

# After a power failure numbering leaves out more than a segment can have.
MOST_MISSING = 1 << 31


def is_missing(end: int, first: int) -> bool:
    """Whether there were messages between the end of one segment and the first offset of the next."""
    return 0 < first - end < MOST_MISSING


def missing_ranges(bounds: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Offsets (first, end) of segments that are gone. bounds: the same of those that exist, in order. What lay before
    the first may have been removed by retention."""
    return [(end, first) for (_, end), (first, _) in itertools.pairwise(bounds) if is_missing(end, first)]
