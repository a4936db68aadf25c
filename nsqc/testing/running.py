"""Runs workers during a test."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar


class Runnable(Protocol):
    """A Worker of either kind."""

    def run(self) -> Awaitable[None] | None:
        """Runs until stop()."""

    def stop(self) -> None:
        """Ends run(). Thread-safe."""


W = TypeVar("W", bound=Runnable)


@contextmanager
def running(worker: W) -> Iterator[W]:
    """Runs a Worker, blocking or asyncio, on a thread until the end of the block, and re-raises its exception."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            awaitable = worker.run()
            if awaitable is not None:
                import asyncio

                async def wait() -> None:
                    await awaitable
                asyncio.run(wait())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="nsqc worker under test", daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join()
    if errors:
        raise errors[0]
