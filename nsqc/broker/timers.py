"""Timers for channels, and for retries after memory or the disk failed.

A channel arms its own next deadline and is called then; an idle channel costs nothing.
"""

from __future__ import annotations

import asyncio
import time

from nsqc.broker.channel import Channel
from nsqc.broker.topic import Topic

RESUME_S = 0.25


class Timers:
    """Calls expire() at deadlines and resume() soon, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._timers: dict[Channel, asyncio.TimerHandle] = {}

    def arm(self, channel: Channel, deadline_ns: int) -> None:
        """Has channel.expire() called at a monotonic time; replaces an earlier deadline."""
        self.disarm(channel)
        # The loop's timers count whole milliseconds: adding half of one avoids rounding to before the deadline.
        delay = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9 + 0.0005)
        self._timers[channel] = self._loop.call_later(delay, self._fire, channel)

    def disarm(self, channel: Channel) -> None:
        """The channel is deleted."""
        timer = self._timers.pop(channel, None)
        if timer is not None:
            timer.cancel()

    def resume_later(self, queue: Topic | Channel) -> None:
        """Has queue.resume() called soon; an immediate retry would fail again."""
        self._loop.call_later(RESUME_S, queue.resume)

    def close(self) -> None:
        """Drops all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _fire(self, channel: Channel) -> None:
        del self._timers[channel]
        channel.expire()
