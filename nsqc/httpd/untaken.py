"""Answers that clients have asked for and do not take: all of a program's together may hold so much memory.

A client may read slowly, page by page for all that anybody knows, as long as there is room. If there is none, those
that have taken nothing for longest have to go, and long answers for others are made once they are gone.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Protocol

MOST_BYTES = 64 * 1024 * 1024   # beyond this, clients that take nothing have to go
_AT_ONCE_BYTES = 2 * MOST_BYTES     # and beyond this also those that have only just stopped to take
GRACE_S = 5.0                   # how long a client may take nothing
_LOOK_S = 0.25                  # how often whoever waits for room looks again


class Taker(Protocol):
    """A connection whose client does not take an answer as fast as it is sent."""

    def untaken(self) -> int:
        """Bytes of answers that are in memory."""

    def give_up(self) -> None:
        """Drops the connection."""


class Untaken:
    """Who takes too little, those that have taken nothing for longest first."""

    def __init__(self) -> None:
        self._takers: dict[Taker, tuple[float, int]] = {}   # since when they take nothing, and how many bytes
        self._bytes = 0

    def add(self, taker: Taker) -> None:
        """It takes nothing, or has just taken something, and others follow if that is too much."""
        self.discard(taker)
        self._note(taker, taker.untaken())
        if self.full:
            self._make_room(taker)

    def discard(self, taker: Taker) -> None:
        """It has taken everything, or is gone."""
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

    def _note(self, taker: Taker, size: int) -> None:
        self._takers[taker] = monotonic(), size
        self._bytes += size

    def _make_room(self, latest: Taker | None) -> None:
        """Has those go that have taken nothing for too long; latest: the one that needs the room, which stays."""
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
