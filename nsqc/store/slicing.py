"""Slices of long work in Python: see nsqc.store.slices."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

from nsqc.store.slices import Slicer

Result = TypeVar("Result")


async def completed(slicer: Slicer, what: str, work: Generator[None, None, Result]) -> Result:
    """Runs a generator to its end; it yields whenever its slice is over. what: its name in /debug/slow."""
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def step() -> bool:
        if done.done():
            return False        # the waiter is gone
        try:
            next(work)
        except StopIteration as end:
            done.set_result(end.value)
            return False
        except Exception as error:
            done.set_exception(error)
            return False
        return True

    step.__qualname__ = what
    slicer.call(step)
    return await done


async def rest(slicer: Slicer) -> None:
    """Yields to the loop if the slice is over, and starts the next one."""
    if slicer.is_over():
        await asyncio.sleep(0)
        slicer.start()
