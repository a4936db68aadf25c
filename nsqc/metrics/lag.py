"""Measures how late the loop runs timers: a delay that every client feels."""

from __future__ import annotations

import asyncio
from time import monotonic

from nsqc.metrics.durations import Durations

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
