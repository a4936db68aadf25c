"""Futures whose results come from callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


# Any: as the callback's argument
def promise() -> tuple[asyncio.Future[Any], Callable[..., None]]:
    """A future of the running loop, and a callback that sets its result. Later calls, and calls after the future was
    cancelled, have no effect."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()    # Any: the same

    def settle(result: object = None) -> None:
        if not future.done():
            future.set_result(result)

    return future, settle
