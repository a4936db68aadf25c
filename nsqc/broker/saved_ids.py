"""The upper bound of message ids, saved in nsqc.ids.dat: ids rise after any stop, kill and clock step."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Executor

from nsqc.broker import nsqc_dat
from nsqc.log import Log
from nsqc.store.guid import GuidFactory
from nsqc.store.machine import boot_id

LEAD_UNITS = (10 * 10**9) >> nsqc_dat.UNIT_BITS  # the saved bound is this far ahead of the ids or the clock
FOLLOWED_UNITS = LEAD_UNITS // 2  # of these: then the bound is raised
RETRY_S = 1.0


class SavedIds:
    """Keeps a bound on disk that no id exceeds: it is written before the first id, and raised well before ids reach it.

    While the bound cannot be raised, ids use the rest of it, which has millions; then publishes are refused.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, guids: GuidFactory,
                 log: Log):
        self._loop = loop
        self._workers = workers
        self._data_path = data_path
        self._guids = guids
        self._log = log
        self._boot_id = boot_id()
        self._writing = False
        self._retry_at = 0.0  # loop time

    def begin(self) -> None:
        """Before the first id, and before any message moves: the contents of nsqc.dat are only true until then. Raises
        OSError."""
        bound = self._next_bound()
        nsqc_dat.save_ids(self._data_path, nsqc_dat.Ids(bound, False, self._boot_id))
        self._set_bound(bound)

    def tick(self) -> None:
        """Raises the bound if necessary. Called every 0.1 s."""
        if self._guids.is_low and not self._writing and self._loop.time() >= self._retry_at:
            self._writing = True
            bound = self._next_bound()
            written = self._loop.run_in_executor(self._workers, self._write, bound, False)
            written.add_done_callback(lambda done: self._written(bound, done))

    def write_stopped(self) -> None:
        """The last write of a stop: everything is on disk, and nsqc.dat is true."""
        if (error := self._write(self._guids.reached, stopped=True)) is not None:
            self._log.error("%s", failure(error))

    def _next_bound(self) -> int:
        return max(self._guids.reached, time.time_ns() >> nsqc_dat.UNIT_BITS) + LEAD_UNITS

    def _set_bound(self, bound: int) -> None:
        self._guids.set_bound(bound, bound - LEAD_UNITS + FOLLOWED_UNITS)

    def _write(self, bound: int, stopped: bool) -> OSError | None:
        """Runs on a worker thread; returns its error."""
        try:
            nsqc_dat.save_ids(self._data_path, nsqc_dat.Ids(bound, stopped, self._boot_id))
        except OSError as error:
            return error
        return None

    def _written(self, bound: int, done: asyncio.Future[OSError | None]) -> None:
        self._writing = False
        error = done.exception() or done.result()
        if error is None:
            self._set_bound(bound)
            if self._guids.reason:
                self._log.info("NSQ: %s can be written again", nsqc_dat.IDS_NAME)
            self._guids.reason = ""
            return
        self._retry_at = self._loop.time() + RETRY_S
        if not self._guids.reason:
            self._log.error("%s; publishes are refused once the saved bound of message ids is reached", failure(error))
        self._guids.reason = failure(error)


def failure(error: BaseException) -> str:
    """For the log and for publishers."""
    return f"NSQ: failed to write {nsqc_dat.IDS_NAME} - {error}"
