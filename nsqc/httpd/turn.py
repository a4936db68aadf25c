"""A share of each loop iteration for requests: a client that pipelines thousands of them holds nobody up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

SHARE_S = 0.001  # of one iteration, for the requests of all connections together


class Turn:
    """Counts the time of the current iteration, and keeps those that have to wait for the next one."""

    def __init__(self) -> None:
        self._end = 0.0     # of this iteration's share; 0: nobody has worked yet
        self._waiting: deque[Callable[[], None]] = deque()

    def over(self) -> bool:
        """Whether the share is used up. The first call in an iteration begins it."""
        now = monotonic()
        if self._end:
            return now >= self._end
        self._end = now + SHARE_S
        asyncio.get_running_loop().call_soon(self._next)
        return False

    def wait(self, go_on: Callable[[], None]) -> None:
        """Calls go_on in one of the next iterations, after those that wait already. Only once the share is over."""
        self._waiting.append(go_on)

    def _next(self) -> None:
        self._end = 0.0
        # Whoever needs more than its share waits again, behind everybody else. What is left over begins the next
        # iteration, which over() has scheduled.
        for _ in range(len(self._waiting)):
            if self.over():
                break
            self._waiting.popleft()()
