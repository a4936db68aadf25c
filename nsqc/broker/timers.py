"""Timers for channels, and for work that has to wait for something out of reach.

A channel arms its own next deadline and is called at that time; an idle channel costs nothing.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

AGAIN_S = 0.25


class Resumable(Protocol):
    """A topic or channel with work left."""

    def resume(self) -> None: ...


class Expiring(Protocol):
    """A channel with deadlines."""

    def expire(self) -> None: ...


class Timers:
    """Calls expire() at deadlines and resume() in a moment, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._timers: dict[Expiring, asyncio.TimerHandle] = {}

    def arm(self, channel: Expiring, deadline_ns: int) -> None:
        """Has channel.expire() called at a monotonic time in nanoseconds; replaces an earlier arming."""
        self.disarm(channel)
        # The loop's timers count whole milliseconds: half of one more keeps it from rounding to before the deadline.
        delay = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9 + 0.0005)
        self._timers[channel] = self._loop.call_later(delay, self._fire, channel)

    def disarm(self, channel: Expiring) -> None:
        """Calls off what was armed: the channel is gone."""
        armed = self._timers.pop(channel, None)
        if armed is not None:
            armed.cancel()

    def again(self, queue: Resumable) -> None:
        """Has queue.resume() called after a moment, where trying at once would be in vain."""
        self._loop.call_later(AGAIN_S, queue.resume)

    def close(self) -> None:
        """Drops all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _fire(self, channel: Expiring) -> None:
        del self._timers[channel]
        channel.expire()
