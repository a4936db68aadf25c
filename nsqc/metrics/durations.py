"""Histogram of durations, for the whole process: a few a second, so plain Python."""

from __future__ import annotations

from itertools import accumulate

_FIRST_BITS = 17    # the first bound is 2 ** 17 ns, 131 µs
_BOUNDS = 18        # each is twice the one before; the last is 2 ** 34 ns, 17 s
BOUNDS_S = tuple((1 << (_FIRST_BITS + at)) / 1e9 for at in range(_BOUNDS))


class Durations:
    """Counts durations by bucket."""

    __slots__ = ("_counts", "sum_ns")
    bounds = BOUNDS_S

    def __init__(self) -> None:
        self._counts = [0] * (_BOUNDS + 1)      # the last one is above all bounds
        self.sum_ns = 0

    def add(self, ns: int) -> None:
        """Counts one duration, in nanoseconds."""
        ns = max(ns, 0)
        self._counts[min(max((ns - 1).bit_length() - _FIRST_BITS, 0), _BOUNDS)] += 1
        self.sum_ns += ns

    def cumulative(self) -> list[int]:
        """For each bound how many were at most that long, then how many there were."""
        return list(accumulate(self._counts))
