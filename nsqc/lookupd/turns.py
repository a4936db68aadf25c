"""A share of each loop iteration for long work, so nobody waits for it: storms of registrations, nodes that leave by
the thousand, answers of megabytes.

What is done at once asks over() every few steps; the rest of it goes into the queue, or waits for rest().
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from nsqc.loop.watch import span_began, span_ended

SHARE_S = 0.005  # of one iteration, for all work of one Turns together


class Turns:
    """Counts the time of the current iteration, and runs queued steps in those that follow."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._end = 0.0                                     # of this iteration's share; 0: nobody has worked yet
        self._queue: deque[Callable[[], bool]] = deque()

    def over(self) -> bool:
        """Whether the share of this iteration is used up. The first call in an iteration begins it."""
        if self._end:
            return perf_counter() >= self._end
        self._begin()
        return False

    def add(self, step: Callable[[], bool]) -> None:
        """Calls step() in coming iterations, in rotation with others, until it returns False: nothing is left."""
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
        self._end = perf_counter() + SHARE_S
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """The iteration after one in which somebody has worked."""
        self._end = 0.0
        if self._queue:
            self._begin()
            began = span_began()
            while self._queue and perf_counter() < self._end:
                self._step()
            span_ended(began, "registrations in turns")

    def _step(self) -> None:
        step = self._queue.popleft()
        if step():
            self._queue.append(step)
