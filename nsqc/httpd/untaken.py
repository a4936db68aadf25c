"""Bounds the memory of answers that clients have requested but do not read, for the whole program.

A client may read slowly, like a pager, while there is room. Without room, clients that have accepted nothing for
longest are disconnected, and further long answers wait until they are gone.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsqc.httpd.pipeline import Pipeline

MOST_BYTES = 64 * 1024 * 1024   # above this, disconnects clients that accept nothing
_AT_ONCE_BYTES = 2 * MOST_BYTES     # and above this, also those that have only just stopped
GRACE_S = 5.0                   # how long a client may accept nothing
_LOOK_S = 0.25                  # between two checks for room


class Untaken:
    """The pipelines of slow clients; those that have accepted nothing for longest come first."""

    def __init__(self) -> None:
        self._takers: dict[Pipeline, tuple[float, int]] = {}     # time of the last progress, and bytes
        self._bytes = 0

    def add(self, taker: Pipeline) -> None:
        """Notes that a client accepts nothing, or has just made progress; makes room if necessary."""
        self.discard(taker)
        self._note(taker, taker.untaken())
        if self.full:
            self._make_room(taker)

    def discard(self, taker: Pipeline) -> None:
        """Removes a client that has read everything, or is gone."""
        known = self._takers.pop(taker, None)
        if known is not None:
            self._bytes -= known[1]

    @property
    def full(self) -> bool:
        """Whether another long answer has to wait."""
        return self._bytes > MOST_BYTES

    async def room(self) -> None:
        """Waits until another long answer may be made."""
        while self.full:
            self._make_room(None)
            if self.full:
                await asyncio.sleep(_LOOK_S)

    def _note(self, taker: Pipeline, size: int) -> None:
        self._takers[taker] = monotonic(), size
        self._bytes += size

    def _make_room(self, latest: Pipeline | None) -> None:
        """Disconnects clients that have accepted nothing for too long, except latest, which needs the room."""
        now = monotonic()
        while self.full:
            taker, (since, size) = next(iter(self._takers.items()))
            if taker is latest or since >= now:
                return
            left = taker.untaken()
            if left < size:
                self.discard(taker)
                self._note(taker, left)
                continue
            if now - since < GRACE_S and (latest is None or self._bytes <= _AT_ONCE_BYTES):
                return
            self.discard(taker)
            taker.give_up()
