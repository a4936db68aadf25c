"""Metrics counted in plain Python: histograms of durations, also of many channels together, and the lag of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from time import monotonic

# ====================================================================== durations
# Histogram of durations, for the whole process: a few a second, so plain Python.

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


# ====================================================================== rising
# Durations of many channels together as one histogram. Its sources may vanish, and its counts must not fall.

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


# ====================================================================== lag
# Measures how late the loop runs timers: a delay that every client feels.

EVERY_S = 0.1
_RESOLUTION_S = 0.001   # of the loop's timers, which are never early and up to this much late


class LoopLag:
    """A timer at fixed intervals that counts its own delays."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lags = Durations()
        self._loop = loop
        self._due = monotonic() + EVERY_S       # the loop's own clock stands still within an iteration
        self._timer = loop.call_later(EVERY_S, self._called)

    def _called(self) -> None:
        now = monotonic()
        self.lags.add(int(max(now - self._due - _RESOLUTION_S, 0.0) * 1e9))
        self._due = now + EVERY_S
        self._timer = self._loop.call_later(EVERY_S, self._called)

    def close(self) -> None:
        """Stops measuring."""
        self._timer.cancel()
