"""Blocking calls beside the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What it returns or raises. Its thread is not waited for when the loop or the process ends, as those of
    asyncio.to_thread are: a nsqlookupd that does not answer must not hold up the end of a program."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if waiter.done():
            return
        if error is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = call(*args, **kwargs)
        except BaseException as caught:
            error = caught
        with suppress(RuntimeError):    # the loop may have been closed meanwhile
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, daemon=True, name="nsqc lookup").start()
    return await waiter
