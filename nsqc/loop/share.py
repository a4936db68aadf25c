"""A time budget per loop iteration, for a listener's HTTP requests or for registrations: a flood delays no one else.

Code that runs immediately calls over() every few steps; the rest is queued with add(), or awaits rest(). Long work on
topics and channels runs in slices instead (nsqc.store.slices).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from nsqc.loop.watch import span_began, span_ended

REQUESTS_S = 0.001          # HTTP requests, all connections together
REGISTRATIONS_S = 0.005     # nodes of the lookup server, all together
LISTS_S = 0.005             # long answers of the lookup server, separate: they proceed during a storm of registrations


class Share:
    """The time that one kind of work may take per iteration."""

    def __init__(self, seconds: float, what: str) -> None:
        """what: the work's name in /debug/slow."""
        self._seconds = seconds
        self._what = what
        self._end = 0.0                                     # of this iteration's share; 0: not started
        self._queue: deque[Callable[[], object]] = deque()

    def over(self) -> bool:
        """Whether this iteration's share is used up. The first call in an iteration starts it."""
        if self._end:
            return monotonic() >= self._end
        self._begin()
        return False

    def add(self, step: Callable[[], object]) -> None:
        """Calls step() in later iterations, round-robin with others, until it returns a false value."""
        self._queue.append(step)
        if not self._end:
            self._begin()

    async def rest(self) -> None:
        """Waits for the next iteration if this one's share is used up."""
        while self.over():
            await asyncio.sleep(0)

    def finish(self) -> None:
        """Runs everything queued now, for a shutdown."""
        while self._queue:
            self._step()

    def _begin(self) -> None:
        self._end = monotonic() + self._seconds
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """The iteration after one that used the share."""
        self._end = 0.0
        if self._queue:
            self._begin()
            began = span_began()
            while self._queue and monotonic() < self._end:
                self._step()
            span_ended(began, self._what)

    def _step(self) -> None:
        step = self._queue.popleft()
        if step():
            self._queue.append(step)
