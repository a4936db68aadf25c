"""Blocking calls off the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns or raises the call's result. Unlike asyncio.to_thread, nothing waits for the thread when the loop or the
    process ends: an unresponsive nsqlookupd must not delay the end of a program."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if waiter.done():
            return
        # A future refuses the one, and closes the coroutines that await it by the other.
        if isinstance(error, (StopIteration, GeneratorExit)):
            waiter.set_exception(RuntimeError(f"the call raised {type(error).__name__}"))
        elif error is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = call(*args, **kwargs)
        except BaseException as caught:
            error = caught
        with suppress(RuntimeError):    # the loop may be closed by now
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, daemon=True, name="nsqc lookup").start()
    return await waiter
