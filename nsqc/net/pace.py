"""Limits how fast one connection may create topics and channels: creations beyond the rate are delayed, not refused."""

from __future__ import annotations

# Burst allowed to an idle connection, in seconds of its rate: clients create most names when they start.
BURST_S = 10.0


class Pace:
    """One connection's recent creations. Times are of a monotonic clock, in seconds."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0   # when the rate allows for everything created so far

    def spend(self, count: int, rate: int, now: float) -> float:
        """Counts creations; returns the seconds that the connection must wait. rate: per second; 0: no limit."""
        if rate <= 0:
            return 0.0
        self._until = max(self._until, now) + count / rate
        return max(0.0, self._until - now - BURST_S)
