"""A share of each loop iteration: for requests of one listener's clients, for registrations. Nobody waits for a flood.

Work done at once asks over() every few steps; the rest is queued with add(), or waits for rest(). Long work on topics
and channels has slices instead (nsqc.store.slices).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from nsqc.loop.watch import span_began, span_ended

REQUESTS_S = 0.001          # HTTP requests, all connections together
REGISTRATIONS_S = 0.005     # nodes of the lookup server, all together
LISTS_S = 0.005             # its long answers, apart from registrations: they proceed during a storm of those


class Share:
    """The time that one kind of work may take in an iteration."""

    def __init__(self, seconds: float, what: str) -> None:
        """what: the work's name in /debug/slow."""
        self._seconds = seconds
        self._what = what
        self._end = 0.0                                     # of this iteration's share; 0: nobody has worked yet
        self._queue: deque[Callable[[], object]] = deque()

    def over(self) -> bool:
        """Whether the share of this iteration is used up. The first call in an iteration begins it."""
        if self._end:
            return monotonic() >= self._end
        self._begin()
        return False

    def add(self, step: Callable[[], object]) -> None:
        """Calls step() in coming iterations, in rotation with others, until it returns something false."""
        self._queue.append(step)
        if not self._end:
            self._begin()

    async def rest(self) -> None:
        """Waits for the next iteration if the share of this one is used up."""
        while self.over():
            await asyncio.sleep(0)

    def finish(self) -> None:
        """Does everything that is queued now, for a stop."""
        while self._queue:
            self._step()

    def _begin(self) -> None:
        self._end = monotonic() + self._seconds
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """The iteration after one with work."""
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
