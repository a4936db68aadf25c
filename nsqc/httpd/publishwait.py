"""--publish-wait over HTTP: a publish that a rule refuses waits for room, and its answer with it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from nsqc.broker import room
from nsqc.broker.topic import FULL, NO_SPACE

if TYPE_CHECKING:
    from nsqc.broker.topic import Topic


class Wait:
    """The wait of one publish, until it succeeds, fails for another reason, or times out."""

    def __init__(self, topic: Topic | None, wait_ns: int) -> None:
        """wait_ns: --publish-wait."""
        self._topic = topic
        self._until_ns = time.monotonic_ns() + wait_ns
        self._woken: asyncio.Future[None] | None = None

    def helps(self, failure: int) -> bool:
        """Whether to retry the publish that just failed, after room()."""
        return (failure in (FULL, NO_SPACE) and self._topic is not None and room.helps(self._topic, failure == FULL)
                and time.monotonic_ns() < self._until_ns)

    async def room(self) -> None:
        """Waits until there may be room for the last refused publish. Call it right after that refusal."""
        assert self._topic is not None
        self._woken = asyncio.get_running_loop().create_future()
        waiting = room.Room(self._topic, self._until_ns, self._wake)
        try:
            await self._woken
        finally:
            waiting.leave()

    def give_up(self) -> None:
        """The client has left, or the daemon is stopping: the next attempt is the last."""
        self._topic = None
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


NO_WAIT = Wait(None, 0)
