"""Syncs of disk queues, off the loop: data, then positions, then what positions no longer need.

A sync begins as soon as a queue has `every` unsynced reads and writes, or the first of them is `timeout` old; a queue
has one under way at most, and the next begins when it ends if it is due by then. A queue that is deleted has its files
taken away when its running sync has ended; one of the same name that is made meanwhile waits with its first sync.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from nsqc.store.disk import syscalls

REWRITE_BYTES = 1 << 20  # of one read and write, where data is written again

Run = Callable[[Callable[[], Any]], "asyncio.Future[Any]"]
Done = list[tuple[str, str]]  # files to remove, or to rename where a new name stands beside

numbers = itertools.count()


class Work(NamedTuple):
    """One sync of a queue."""

    meta_path: str
    data: list[tuple[str, int]]  # files to sync; from an offset that is not negative on, they are written again first
    folder: bool  # there are new files
    positions: bytes
    done: Done


class Syncer:
    """All queues of a daemon that have something to sync."""

    def __init__(self, every: int, timeout_ns: int, run: Run | None, log: Any):
        """run(job) executes a job on a worker thread and returns its future on the loop; None: at once, here."""
        self.every = every
        self.timeout_ns = timeout_ns
        self._run = run
        self._log = log
        self._since: dict[Any, int] = {}  # queue to the monotonic time of its first unsynced operation; 0: due now
        self._running: dict[str, asyncio.Future[Any]] = {}  # queue name to its sync, or to the removal of its files
        self._dying: dict[str, list[tuple[Any, Done]]] = {}  # deleted queues by name, and what is to be removed next
        self.stale_writes = 0  # of deleted queues; counted by them
        self._removals: set[asyncio.Future[Any]] = set()  # that are under way
        self._closed: list[tuple[str, Work]] = []  # last syncs of closed queues
        self._last: set[asyncio.Future[Any]] = set()  # those that are running
        self._used: set[Any] = set()  # queues that may hold memory for reading and writing
        self.failing: dict[str, str] = {}  # queue name to why its last sync failed

    def began(self, queue: Any) -> None:
        """A queue has its first unsynced operation."""
        self._since.setdefault(queue, time.monotonic_ns())
        self._used.add(queue)

    def start(self, queue: Any) -> None:
        """Syncs a queue now, or when what runs under its name has ended."""
        if queue.closed:
            return
        self._used.add(queue)
        if queue.name in self._running:
            self._since[queue] = 0
            return
        self._since.pop(queue, None)
        work = Work(queue.meta_path, *queue.sync_began())
        self._start(queue.name, partial(sync, work), partial(self._ended, queue, work))

    def _start(self, name: str, job: Callable[[], Any], ended: Callable[[BaseException | None], None]) -> None:
        """Runs a job under the name of a queue; ended(error) follows."""
        if self._run is None:
            ended(job())
            return
        try:
            running = self._run(job)
        except RuntimeError as error:  # no thread can be had
            ended(error)
            return
        self._running[name] = running
        running.add_done_callback(partial(self._job_done, name, ended))

    def _job_done(self, name: str, ended: Callable[[BaseException | None], None], job: asyncio.Future[Any]) -> None:
        self._running.pop(name, None)
        ended(job.exception() or job.result())

    def _ended(self, queue: Any, work: Work, error: BaseException | None) -> None:
        """A sync has ended."""
        if queue.closed:
            if queue.name in self._dying:
                self._remove_next(queue.name)
            return
        if error is not None:
            self._log.error("DISKQUEUE(%s) failed to sync - %s", queue.name, error)
            self.failing[queue.name] = f"failed to sync {queue.name} - {error}"
            queue.sync_failed(work.done)
            self._since[queue] = time.monotonic_ns()
            return
        queue.sync_succeeded()
        self.failing.pop(queue.name, None)
        if queue in self._since and (self._since[queue] == 0 or queue.unsynced >= self.every):
            self.start(queue)

    def tick(self) -> None:
        """Begins the syncs whose time has come, and has idle queues give back what they hold."""
        due = time.monotonic_ns() - self.timeout_ns
        for queue in [queue for queue, since in self._since.items() if since <= due]:
            self.start(queue)
        for queue in list(self._used):
            if not queue.looked() and queue.name not in self._running and queue not in self._since:
                self._used.discard(queue)
                queue.release()

    # ------------------------------------------------------------------ queues that go

    def remove(self, done: Done) -> None:
        """Takes files away that no positions speak of."""
        if self._run is None:
            take_away(done)
            return
        removal = self._run(partial(take_away, done))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    def deleted(self, queue: Any) -> None:
        """A queue is gone: its files are removed, its positions first."""
        self._since.pop(queue, None)
        self._used.discard(queue)
        self.failing.pop(queue.name, None)
        done = queue.sync_began()[3]
        self._dying.setdefault(queue.name, []).append((queue, done))
        if queue.name not in self._running:
            self._remove_next(queue.name)

    def _remove_next(self, name: str) -> None:
        """Removes the files of deleted queues of that name, then lets one that is there now go on."""
        gone = self._dying.pop(name, [])
        done = [(gone[0][0].meta_path, "")]
        for _, files in gone:
            done += files
        self._start(name, partial(take_away, done), partial(self._removed, name, gone))
        if name in self._running:
            self._removals.add(self._running[name])
            self._running[name].add_done_callback(self._removals.discard)

    def _removed(self, name: str, gone: list[tuple[Any, Done]], error: BaseException | None) -> None:
        """gone: keeps the queues; while one exists, a new one of its name uses no file number of it."""
        if name in self._dying:
            self._remove_next(name)
            return
        for queue in [queue for queue, since in self._since.items() if since == 0 and queue.name == name]:
            self.start(queue)

    @property
    def runs(self) -> bool:
        """Whether any sync or removal is under way."""
        return bool(self._running)

    async def removed(self) -> None:
        """Waits until the files of all queues that were deleted so far are gone."""
        while True:
            waiting = {self._running[name] for name in self._dying if name in self._running} | self._removals
            if waiting:
                await asyncio.wait(waiting)
                await asyncio.sleep(0)
            elif self.stale_writes:
                await asyncio.sleep(0.001)
            else:
                return

    async def synced(self, queue: Any) -> None:
        """Waits for the sync that the queue has just been started for."""
        again = self._since.get(queue) == 0
        for _ in range(1 + again):
            if queue.name in self._running:
                await asyncio.wait([self._running[queue.name]])
                await asyncio.sleep(0)

    # ------------------------------------------------------------------ the stop

    async def settle(self) -> None:
        """Waits for the syncs under way and for those of closed queues; for a stop."""
        self.sync_closed()
        while waiting := self._last.union(self._running.values()):
            await asyncio.wait(waiting)
            await asyncio.sleep(0)

    def finish(self, queue: Any) -> None:
        """Syncs a queue that closes, while nothing runs under its name.

        That is noted for settle(): a disk syncs many queues at a time, and after all are written, in a fraction of the
        time that one by one takes. Where there are no workers it is done here and now, and raises OSError.
        """
        self._since.pop(queue, None)
        self._used.discard(queue)
        if not queue.needs_sync:
            return
        work = Work(queue.meta_path, *queue.sync_began())
        if self._run is not None:
            self._closed.append((queue.name, work))
            return
        error = sync(work)
        if error is not None:
            raise error

    def sync_closed(self) -> None:
        """Begins the syncs of closed queues."""
        closed, self._closed = self._closed, []
        for name, work in closed:
            job = self._run(partial(sync, work))
            self._last.add(job)
            job.add_done_callback(partial(self._finished, name))

    def _finished(self, name: str, job: asyncio.Future[Any]) -> None:
        self._last.discard(job)
        error = job.exception() or job.result()
        if error is not None:
            self.failing[name] = f"failed to sync {name} - {error}"
            self._log.error("DISKQUEUE(%s) failed to sync - %s", name, error)


# ---------------------------------------------------------------------- on a worker thread


def sync(work: Work) -> OSError | None:
    """A whole sync; what it failed with."""
    try:
        for path, rewrite_from in work.data:
            with suppress(FileNotFoundError):  # emptied or deleted meanwhile
                sync_data(path, rewrite_from)
        if work.folder:
            syscalls.sync_path(os.path.dirname(work.meta_path))
        put_positions(work)
    except OSError as error:
        return error
    take_away(work.done)
    return None


def sync_data(path: str, rewrite_from: int) -> None:
    """fsync of a file that may be open elsewhere as well; from an offset on, if that is not negative, its data is
    written again before, since an earlier sync has failed and may have left it clean in memory only."""
    if rewrite_from < 0:
        syscalls.sync_path(path)
        return
    descriptor = os.open(path, os.O_RDWR)
    try:
        end = os.fstat(descriptor).st_size
        while rewrite_from < end:
            data = os.pread(descriptor, min(REWRITE_BYTES, end - rewrite_from), rewrite_from)
            if not data:
                break
            rewrite_from += os.pwrite(descriptor, data, rewrite_from)
        syscalls.sync_file(descriptor)
    finally:
        os.close(descriptor)


def put_positions(work: Work) -> None:
    """Puts positions in the place of the old ones. Raises OSError.

    Where the disk has no room for a file beside, the old one is overwritten: it has its block already. A crash in the
    midst of that leaves positions that cannot be read, and these are rebuilt from the files, all of which are there.
    """
    temporary = f"{work.meta_path}.{os.getpid()}-{next(numbers)}.tmp"
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                write_all(descriptor, work.positions)
                syscalls.sync_file(descriptor)
            finally:
                os.close(descriptor)
            syscalls.rename_file(temporary, work.meta_path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        overwrite(work)


def overwrite(work: Work) -> None:
    """Positions over the old ones; where there are none and no room, none are needed once the files that are read
    through are gone: the queue begins with the first file there is."""
    try:
        descriptor = os.open(work.meta_path, os.O_WRONLY)
    except FileNotFoundError:
        if not work.done:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), work.meta_path) from None
        return
    try:
        write_all(descriptor, work.positions)
        os.ftruncate(descriptor, len(work.positions))
        syscalls.sync_file(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes data. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest):]


def take_away(done: Done) -> None:
    """Removes or renames files."""
    for path, becomes in done:
        with suppress(OSError):
            if becomes:
                syscalls.rename_file(path, becomes)
            else:
                os.unlink(path)
