"""Tasks whose failure is logged."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from nsqc.log import Log


def reason_of(error: Exception) -> str:
    """The error of a peer, for the log. Unexpected errors are named: they are bugs."""
    if isinstance(error, TimeoutError) and not str(error):
        return "timed out"
    expected = isinstance(error, (OSError, ValueError)) or type(error).__module__.startswith("nsqc.")
    return str(error) if expected and str(error) else repr(error)


# Any: the values exchanged between a coroutine and the loop are up to the loop
def spawn(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], log: Log) -> asyncio.Task[None]:
    """Starts a task. An exception that ends it is a bug of the daemon, and is logged at once."""
    task = loop.create_task(work)

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("%s ended: %r", getattr(work, "__qualname__", work), task.exception())

    task.add_done_callback(ended)
    return task
