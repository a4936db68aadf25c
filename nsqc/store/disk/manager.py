"""The disk queues of one daemon: opened by name, ticked together."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Executor
from typing import Any
from weakref import WeakValueDictionary

from nsqc.store.disk.index import Index
from nsqc.store.disk.pool import IoPool
from nsqc.store.disk.queue import DiskQueue
from nsqc.store.disk.syncer import Syncer
from nsqc.store.rules import ENABLED as CHECKS

THREADS = 4  # for reads and writes


class Disks:
    """Opens disk queues in a data path and keeps their syncs going."""

    def __init__(self, options: Any, data_path: str | os.PathLike[str], loop: asyncio.AbstractEventLoop,
                 workers: Executor, log: Any):
        """workers: for syncs, and for nothing else that anybody waits for."""
        self._folder = os.fspath(data_path)
        self._options = options
        self._log = log
        self._pool = IoPool(THREADS, loop)
        self._syncer = Syncer(options.sync_every, options.sync_timeout,
                              lambda job: loop.run_in_executor(workers, job), log)
        self._queues: WeakValueDictionary[str, DiskQueue] = WeakValueDictionary()
        self.index = Index(self._folder)

    def open(self, name: str) -> DiskQueue:
        """The queue TOPIC or TOPIC:CHANNEL, with what earlier runs have left in it.

        While files of a deleted queue of that name are still being written or removed, the new one begins behind them.
        """
        earlier = self._queues.get(name)
        first = None
        if earlier is not None:
            earlier.delete()
            first = earlier.write_number
        queue = DiskQueue(name, self._folder, self._options.max_bytes_per_file, self._options.message_limit,
                          self._pool, self._syncer, self._log, self.index.take(name), first)
        self._queues[name] = queue
        return queue

    def tick(self) -> None:
        """Looks at sync deadlines and idle queues."""
        self._syncer.tick()
        if CHECKS:
            self.check_rules()

    def check_rules(self) -> None:
        """For the debug build: what is broken is told like an exception that nobody has caught."""
        for queue in list(self._queues.values()):
            queue.check_rules()

    def failing_sync(self) -> str | None:
        """What fails to sync; None: nothing."""
        return next(iter(self._syncer.failing.values()), None)

    async def removed(self) -> None:
        """Waits until the files of all queues that were deleted so far are gone."""
        await self._syncer.removed()

    async def synced(self, queue: DiskQueue) -> None:
        """Waits until what has just been emptied is off the disk."""
        await self._syncer.synced(queue)

    async def settle(self) -> None:
        """Waits for what is being read, written or synced."""
        while self._pool.under_way:
            await asyncio.sleep(0.001)
        await self._syncer.settle()

    async def quiet(self) -> None:
        """For a stop: as settle(); from then on files are written where and when it is asked for."""
        while self._pool.under_way or self._syncer.runs:
            await self.settle()
        self._pool.close()
