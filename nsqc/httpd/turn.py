"""A share of each loop iteration for requests: a client that pipelines thousands of them holds nobody up."""

from __future__ import annotations

import asyncio
from time import monotonic

SHARE_S = 0.002  # of one iteration, for the handlers of all connections together; plain publishes have none


class Turn:
    """Counts the time of the current iteration."""

    def __init__(self) -> None:
        self._end = 0.0     # of this iteration's share; 0: nobody has worked yet

    def over(self) -> bool:
        """Whether the share is used up. The first call in an iteration begins it."""
        now = monotonic()
        if self._end:
            return now >= self._end
        self._end = now + SHARE_S
        asyncio.get_running_loop().call_soon(self._next)
        return False

    def _next(self) -> None:
        self._end = 0.0
