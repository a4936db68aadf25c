"""How fast one connection may create topics and channels: what is beyond the rate waits, and is not refused."""

from __future__ import annotations

# What a quiet connection may create at once, in seconds of its rate: clients create most names when they start.
BURST_S = 10.0


class Pace:
    """What one connection has created lately. Times are of a monotonic clock, in seconds."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0   # when the rate allows for everything created so far

    def spend(self, count: int, rate: int, now: float) -> float:
        """Notes that this many were created; how long the connection has to wait before it may go on. rate: per second;
        0: no limit."""
        if rate <= 0:
            return 0.0
        self._until = max(self._until, now) + count / rate
        return max(0.0, self._until - now - BURST_S)
