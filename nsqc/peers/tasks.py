"""Tasks whose failure is not kept to themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], log: Any) -> asyncio.Task[None]:
    """A task; an exception that ends it is a fault of the program, and logged at once."""
    task = loop.create_task(work)

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("%s ended: %r", work.__qualname__, task.exception())

    task.add_done_callback(ended)
    return task
