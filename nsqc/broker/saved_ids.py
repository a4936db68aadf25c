"""The upper bound of message ids, saved in nsqc.ids.dat: ids rise after any stop, kill and clock step."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from nsqc.broker import nsqc_dat
from nsqc.log import Log
from nsqc.store.guid import GuidFactory
from nsqc.store.machine import boot_id

EVERY_S = 5.0


class SavedIds:
    """Saves it periodically, ahead of the ids in use."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, guids: GuidFactory,
                 log: Log):
        self._loop = loop
        self._workers = workers
        self._data_path = data_path
        self._guids = guids
        self._log = log
        self._boot_id = boot_id()
        self._saved = guids.reached
        self._timer: asyncio.TimerHandle | None = None

    def replace(self, durable: bool) -> None:
        """Before any message moves: the contents of nsqc.dat are only true until then. Raises OSError."""
        nsqc_dat.save_ids(self._data_path, self._ids(self._guids.reached), durable=durable)

    def start(self) -> None:
        """Makes the write of replace() durable now, so that the start need not wait for the disk."""
        self._loop.run_in_executor(self._workers, self._write, self._ids(self._guids.reached))
        self._save()

    def close(self) -> None:
        """For a stop."""
        if self._timer is not None:
            self._timer.cancel()

    def write_stopped(self) -> None:
        """The last write of a stop: everything is on disk, and nsqc.dat is true."""
        self._write(self._ids(self._guids.reached, stopped=True))

    def _save(self) -> None:
        reached = self._guids.reached
        if reached != self._saved:
            self._saved = reached
            ahead = reached + (int(2 * EVERY_S * 1e9) >> nsqc_dat.UNIT_BITS)
            self._loop.run_in_executor(self._workers, self._write, self._ids(ahead))
        self._timer = self._loop.call_later(EVERY_S, self._save)

    def _ids(self, reached: int, stopped: bool = False) -> nsqc_dat.Ids:
        return nsqc_dat.Ids(reached, stopped, self._boot_id)

    def _write(self, ids: nsqc_dat.Ids) -> None:
        try:
            nsqc_dat.save_ids(self._data_path, ids, durable=True)
        except OSError as error:
            self._log.error("NSQ: failed to write %s - %s", nsqc_dat.IDS_NAME, error)
