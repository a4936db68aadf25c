"""A daemon's disk queues: opened by name, synced together."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Executor
from weakref import WeakValueDictionary

from nsqc.log import Log
from nsqc.store.disk.index import Index
from nsqc.store.disk.pool import IoPool
from nsqc.store.disk.queue import DiskQueue
from nsqc.store.disk.syncer import Future, Job, Syncer
from nsqc.store.rules import ENABLED as CHECKS

THREADS = 4  # for reads and writes


class DiskQueues:
    """Opens disk queues in a data path and keeps them synced."""

    def __init__(self, data_path: str | os.PathLike[str], loop: asyncio.AbstractEventLoop, workers: Executor, log: Log,
                 max_bytes_per_file: int, message_limit: int, sync_every: int, sync_timeout_ns: int):
        """workers: used only for syncs. message_limit: bytes of the largest body. sync_every: reads and writes between
        two syncs."""

        def run(job: Job) -> Future:
            return loop.run_in_executor(workers, job)

        self._folder = os.fspath(data_path)
        self._max_bytes_per_file = max_bytes_per_file
        self._message_limit = message_limit
        self._log = log
        self.pool = IoPool(THREADS, loop)
        self.syncer = Syncer(sync_every, sync_timeout_ns, run, log)
        self._queues: WeakValueDictionary[str, DiskQueue] = WeakValueDictionary()
        self.index = Index(self._folder)

    def has(self, name: str) -> bool:
        """Whether an earlier run left files of this queue, which is not open yet."""
        return name in self.index.queues

    def open(self, name: str) -> DiskQueue:
        """Opens the queue TOPIC or TOPIC:CHANNEL with its existing messages. Raises OSError.

        While files of a deleted queue of that name are still being written or removed, the new one uses later numbers.
        """
        earlier = self._queues.get(name)
        first = None
        if earlier is not None:
            earlier.delete()
            first = earlier.write_number
        queue = DiskQueue(name, self._folder, self._max_bytes_per_file, self._message_limit, self.pool, self.syncer,
                          self._log, self.index.take(name), first)
        self._queues[name] = queue
        return queue

    def tick(self) -> bool:
        """Starts due syncs, and checks for idle queues. True: more remains for the next loop iteration."""
        self.pool.look()
        more = self.syncer.tick()
        if CHECKS:
            self.check_rules()
        return more

    def check_rules(self) -> None:
        """For the debug build: reports a broken rule like an uncaught exception."""
        for queue in list(self._queues.values()):
            queue.check_rules()

    def failing_sync(self) -> str | None:
        """The failing sync, described; None: none."""
        return next(iter(self.syncer.failing.values()), None)

    async def removed(self) -> None:
        """Waits until the files of all deleted queues are gone."""
        await self.syncer.removed()

    async def synced(self, queue: DiskQueue) -> None:
        """Waits until everything removed by empty() is gone from the disk."""
        await self.syncer.synced(queue)

    async def settle(self) -> None:
        """Waits for reads, writes and syncs in progress."""
        while self.pool.under_way:
            await asyncio.sleep(0.001)
        await self.syncer.settle()

    async def quiet(self) -> None:
        """For a shutdown: like settle(); afterwards queues read and write synchronously on the loop."""
        while self.pool.under_way or self.syncer.runs:
            await self.settle()
        self.pool.close()
