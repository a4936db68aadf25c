"""Long work of the admin server, in slices between which others run."""

from __future__ import annotations

import asyncio
import time

SLICE_S = 0.004     # of a loop iteration


class Pace:
    """Gives the loop to others after a slice of time."""

    def __init__(self) -> None:
        self._until = time.monotonic() + SLICE_S
        self.spent = 0.0

    def over(self) -> bool:
        """Whether the slice is over."""
        return time.monotonic() > self._until

    async def rest(self) -> None:
        """Lets others run."""
        self.spent += SLICE_S
        await asyncio.sleep(0)
        self._until = time.monotonic() + SLICE_S
