"""Durations of many channels together as one histogram. Its sources may vanish, and its counts must not fall."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


class Rising:
    """Adds the growth of its sources since the last reading. Messages that a channel counts between the last reading
    and its deletion are left out."""

    __slots__ = ("_before", "_counts", "_sum_before", "bounds", "sum_ns")

    def __init__(self, bounds: Sequence[float]) -> None:
        """bounds: of the buckets, seconds."""
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)      # the last one is above all bounds
        self._before = [0] * (len(bounds) + 1)
        self.sum_ns = self._sum_before = 0

    def take(self, counts: Sequence[int], sum_ns: int) -> None:
        """Takes the counts and the sum of all current sources."""
        for place, (now, before) in enumerate(zip(counts, self._before, strict=True)):
            self._counts[place] += max(now - before, 0)
        self.sum_ns += max(sum_ns - self._sum_before, 0)
        self._before, self._sum_before = list(counts), sum_ns

    def cumulative(self) -> list[int]:
        """For each bound how many were at most that long, then how many there were."""
        return list(accumulate(self._counts))
