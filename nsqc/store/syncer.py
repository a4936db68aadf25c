"""Syncs of disk queues, off the loop: data, then positions, then what positions no longer need.

A sync begins as soon as a queue has `every` unsynced reads and writes, or the first of them is `timeout` old; a queue
has one under way at most, and the next begins when it ends if it is due by then.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from nsqc.store import diskmeta

Paths = list[str]
Done = list[tuple[str, str]]  # files to remove, or to rename where a new name stands beside
Work = tuple[Paths, bytes, Done]
Run = Callable[[Callable[[], Any]], "asyncio.Future[Any]"]

numbers = itertools.count()


class Syncer:
    """All queues of a daemon that have something to sync."""

    def __init__(self, every: int, timeout_ns: int, run: Run | None, log: Any):
        """run(job) executes a job on a worker thread and returns its future on the loop; None: at once, here."""
        self.every = every
        self.timeout_ns = timeout_ns
        self._run = run
        self._log = log
        self._since: dict[Any, int] = {}  # queue to the monotonic time of its first unsynced operation; 0: due now
        self._running: dict[Any, asyncio.Future[Any]] = {}
        self._work: dict[Any, Work] = {}  # of those that are running
        self._closed: list[tuple[str, str, Work]] = []  # name, path of positions and last sync of closed queues
        self._last: set[asyncio.Future[Any]] = set()  # those that are running
        self._used: set[Any] = set()  # queues that may hold descriptors
        self.failing: dict[str, str] = {}  # queue name to why its last sync failed

    def began(self, queue: Any) -> None:
        """A queue has its first unsynced operation."""
        self._since.setdefault(queue, time.monotonic_ns())
        self._used.add(queue)

    def start(self, queue: Any) -> None:
        """Syncs a queue now, or when its running sync ends."""
        if queue.closed:
            return
        self._used.add(queue)
        if queue in self._running:
            self._since[queue] = 0
            return
        self._since.pop(queue, None)
        work = queue.sync_began()
        temporary = temporary_of(queue.meta_path)
        if self._run is None:
            self._ended(queue, work, temporary, write(temporary, work))
            return
        job = self._run(lambda: write(temporary, work))
        self._running[queue] = job
        self._work[queue] = work
        job.add_done_callback(lambda done: self._ended(queue, work, temporary, done.exception() or done.result()))

    def _ended(self, queue: Any, work: Work, temporary: str, error: BaseException | None) -> None:
        """Data and positions are written: puts the positions in place. On the loop, so that a queue that was deleted
        meanwhile does not get its positions back."""
        self._running.pop(queue, None)
        self._work.pop(queue, None)
        if queue.closed:
            with suppress(OSError):
                os.unlink(temporary)
            self._since.pop(queue, None)
            self._remove(work[2])
            return
        if error is None:
            error = place(temporary, queue.meta_path)
        if error is not None:
            self._log.error("DISKQUEUE(%s) failed to sync - %s", queue.name, error)
            self.failing[queue.name] = f"failed to sync {queue.name} - {error}"
            queue.sync_failed(work[0], work[2])
            self._since[queue] = time.monotonic_ns()
            return
        self.failing.pop(queue.name, None)
        self._remove(work[2])
        if queue in self._since and (self._since[queue] == 0 or queue.unsynced >= self.every):
            self.start(queue)

    def _remove(self, done: Done) -> None:
        """Takes files away: out of the way here, off the disk on a worker thread."""
        gone = []
        while done:
            path, becomes = done.pop(0)
            if becomes:
                error = place(path, becomes)
                if error is not None:
                    self._log.error("DISKQUEUE: failed to keep %s as %s - %s", path, becomes, error)
                continue
            retired = path if diskmeta.is_retired(path) else diskmeta.retire(path)
            if retired is not None:
                gone.append(retired)
        if gone and self._run is not None:
            self._run(lambda: remove(gone))
        elif gone:
            remove(gone)

    def tick(self) -> None:
        """Begins the syncs whose time has come, and has idle queues give back what they hold."""
        due = time.monotonic_ns() - self.timeout_ns
        for queue in [queue for queue, since in self._since.items() if since <= due]:
            self.start(queue)
        for queue in list(self._used):
            if not queue.looked() and queue not in self._running and queue not in self._since:
                self._used.discard(queue)
                queue.release()

    def deleted(self, queue: Any) -> None:
        """A queue is gone; its retired files are removed, and those that a running sync would have taken away."""
        self._since.pop(queue, None)
        self._used.discard(queue)
        self.failing.pop(queue.name, None)
        if queue in self._work:
            self._remove(self._work[queue][2])
        self._remove(queue.sync_began()[2])

    async def settle(self) -> None:
        """Waits for the syncs under way and for those of closed queues; for a stop."""
        self.sync_closed()
        while waiting := self._last.union(self._running.values()):
            await asyncio.wait(waiting)
            await asyncio.sleep(0)

    def finish(self, queue: Any) -> None:
        """Syncs a queue that closes, with what a running sync may not have done yet.

        That is noted for settle(): a disk syncs many queues at a time, and after all are written, in a fraction of the
        time that one by one takes. Where there are no workers it is done here and now, and raises OSError.
        """
        self._since.pop(queue, None)
        self._used.discard(queue)
        running = self._work.get(queue)
        if not queue.needs_sync and running is None:
            return
        work = queue.sync_began()
        if running is not None:
            work = (running[0] + work[0], work[1], running[2] + work[2])
            running[2].clear()  # the running one must not take away what its positions, never put in place, let go
        if self._run is not None:
            self._closed.append((queue.name, queue.meta_path, work))
            return
        error = write_in_place(queue.meta_path, work)
        if error is not None:
            raise error
        self._remove(work[2])

    def sync_closed(self) -> None:
        """Begins the syncs of closed queues."""
        closed, self._closed = self._closed, []
        for name, meta_path, work in closed:
            job = self._run(partial(write_in_place, meta_path, work))
            self._last.add(job)
            job.add_done_callback(partial(self._finished, name, work))

    def _finished(self, name: str, work: Work, job: asyncio.Future[Any]) -> None:
        self._last.discard(job)
        error = job.exception() or job.result()
        if error is None:
            self._remove(work[2])
        else:
            self._log.error("DISKQUEUE(%s) failed to sync - %s", name, error)


def temporary_of(meta_path: str) -> str:
    """Where positions are written before they are put in place; another one each time."""
    return f"{meta_path}.{os.getpid()}-{next(numbers)}.tmp"


def write_in_place(meta_path: str, work: Work) -> OSError | None:
    """A whole sync, of a queue that nothing else happens to."""
    temporary = temporary_of(meta_path)
    return write(temporary, work) or place(temporary, meta_path)


def write(temporary: str, work: Work) -> OSError | None:
    """Syncs data, then writes positions into a temporary file; what that failed with."""
    paths, positions, _ = work
    try:
        for path in paths:
            with suppress(FileNotFoundError):  # emptied or deleted meanwhile
                sync_path(path)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, positions)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary)
        return error
    return None


def place(temporary: str, meta_path: str) -> OSError | None:
    """Puts positions in the place of the old ones; what that failed with."""
    try:
        os.rename(temporary, meta_path)
    except OSError as error:
        return error
    return None


def sync_path(path: str) -> None:
    """fsync of a file that may be open elsewhere as well."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(paths: Paths) -> None:
    """Removes files."""
    for path in paths:
        with suppress(OSError):
            os.unlink(path)
