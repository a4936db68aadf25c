"""Workers of all kinds, run in a thread of the test."""

from __future__ import annotations

import asyncio
import threading

from nsqc.client import Worker, aio
from nsqc.client.aio.connection import in_thread
from tests.support.patience import WAIT_SECONDS


class Running:
    """A worker that runs until the end of the with block, which raises the exception of run()."""

    def __init__(self, worker):
        self.worker = worker
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            self._work()
        except BaseException as error:
            self.error = error

    def _work(self):
        self.worker.run()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.worker.stop()
        self.thread.join(WAIT_SECONDS)
        assert not self.thread.is_alive()
        if kind is None and self.error is not None:
            raise self.error


def blocking(*arguments, handler, **options):
    """Handlers in threads."""
    return Running(Worker(*arguments, handler=handler, **options))


class RunningLoop(Running):
    def _work(self):
        asyncio.run(self.worker.run())


def threads_of_asyncio(*arguments, handler, **options):
    """Plain handlers beside an event loop."""
    return RunningLoop(aio.Worker(*arguments, handler=handler, **options))


def tasks(*arguments, handler, **options):
    """Coroutines; the handlers of tests wait in threads."""
    async def handle(message):
        await asyncio.sleep(0)
        await in_thread(handler, message)
    return RunningLoop(aio.Worker(*arguments, handler=handle, **options))


KINDS = {"blocking": blocking, "asyncio-threads": threads_of_asyncio, "asyncio-tasks": tasks}
