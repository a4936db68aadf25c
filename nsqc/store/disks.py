"""The disk queues of one daemon: opened by name, ticked together."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from nsqc.store.diskmeta import remove_leftovers
from nsqc.store.diskqueue import DiskQueue
from nsqc.store.filepool import FilePool
from nsqc.store.syncer import Syncer


class Disks:
    """Opens disk queues in a data path and keeps their syncs going."""

    def __init__(self, options: Any, data_path: Path, loop: asyncio.AbstractEventLoop, workers: Executor, log: Any):
        self._folder = str(data_path)
        self._options = options
        self._log = log
        self._pool = FilePool(options.fd_pool_size)
        self._syncer = Syncer(options.sync_every, options.sync_timeout,
                              lambda job: loop.run_in_executor(workers, job), log)
        remove_leftovers(self._folder)

    def open(self, name: str) -> DiskQueue:
        """The queue TOPIC or TOPIC:CHANNEL, with what earlier runs have left in it."""
        return DiskQueue(name, self._folder, self._options.max_bytes_per_file, self._options.message_limit,
                         self._pool, self._syncer, self._log)

    def tick(self) -> None:
        """Looks at sync deadlines and idle queues."""
        self._syncer.tick()

    def trouble(self) -> str | None:
        """What fails to sync; None: nothing."""
        return next(iter(self._syncer.failing.values()), None)

    async def settle(self) -> None:
        """Waits for what is being synced."""
        await self._syncer.settle()
