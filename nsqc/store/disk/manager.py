"""A daemon's disk queues: opened by name, synced together."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from nsqc.log import Log
from nsqc.metrics.durations import Durations
from nsqc.store.disk import fileio
from nsqc.store.disk.fileio import IoPool
from nsqc.store.disk.queue import DiskQueue
from nsqc.store.disk.recovery import Index
from nsqc.store.memory import ENABLED as CHECKS

if TYPE_CHECKING:
    from nsqc.store.log.topiclog import TopicLog


# ====================================================================== syncer
# Syncs disk queues off the loop: data, then positions, then removal of files that the positions no longer need.
# The folder is synced before each step that relies on names created by the previous one.
#
# A sync starts as soon as a queue has `every` unsynced reads and writes, or the first of them is `timeout` old. A queue
# has at most one in progress; the next one starts when that ends, if it is due by then. After a sync a log rests, at
# most LONGEST_REST_NS, so that syncs take a tenth of the time of a publisher at full speed. The files of a deleted
# queue are removed when its running sync has ended; the first sync of a new queue of the same name waits for
# that.

REST = 9  # multiple of its last sync's duration that a log rests
LONGEST_REST_NS = 1_000_000_000
SLICE_NS = 1_000_000  # of checking all queues, per loop iteration
MOST_RUNNING = 1024  # due syncs wait for the next round while this many are in progress

SyncedQueue: TypeAlias = "DiskQueue | TopicLog"
Job = Callable[[], OSError | None]  # for a worker thread; returns its error
Future = asyncio.Future[OSError | None]
Run = Callable[[Job], Future]
Ended = Callable[[BaseException | None], None]
Data = list[tuple[str, int]]  # files to sync; from a non-negative offset on, they are rewritten first
Done = list[tuple[str, str]]  # files to remove, or to rename if there is a new path
Closed = list[tuple[str, "Work"]]  # queue names and their last syncs


class Work(NamedTuple):
    """One sync of a queue."""

    meta_path: str
    data: Data
    folder: bool  # it has new files
    positions: bytes
    done: Done


Step = Callable[[Work], object]  # of a sync; raises OSError


class Syncer:
    """All queues of a daemon that need a sync."""

    def __init__(self, every: int, timeout_ns: int, run: Run | None, log: Log):
        """run(job) runs a job on a worker thread and returns its future; None: jobs run synchronously."""
        self.every = every
        self.timeout_ns = timeout_ns
        self._run = run
        self._log = log
        self._since: dict[SyncedQueue, int] = {}  # to the monotonic time of the first unsynced operation; 0: due now
        self._rests: dict[SyncedQueue, int] = {}  # to the end of its rest
        self._running: dict[str, Future] = {}  # queue name to its sync, or to the removal of its files
        self._dying: dict[str, list[tuple[SyncedQueue, Done]]] = {}  # deleted queues by name, with files to remove
        self.stale_writes = 0  # in progress, of deleted queues; counted by the queues
        self._removals: set[Future] = set()  # in progress
        self._closed: Closed = []  # last syncs of closed queues
        self._last: set[Future] = set()  # their steps in progress
        self._used: set[SyncedQueue] = set()  # queues that may hold memory for reading and writing
        self._round: Iterator[None] | None = None  # the unfinished round of checks
        self.failing: dict[str, str] = {}  # queue name to its last sync's error
        self.durations = Durations()  # of successful syncs, including the wait for a thread
        self.failures = 0

    def began(self, queue: SyncedQueue) -> None:
        """A queue has its first unsynced operation."""
        self._since.setdefault(queue, time.monotonic_ns())
        self._used.add(queue)

    def uses(self, queue: SyncedQueue) -> None:
        """A queue holds files or memory to release once it is idle."""
        self._used.add(queue)

    def start_rested(self, queue: SyncedQueue) -> None:
        """Syncs a queue now, or when its rest ends."""
        if queue.name not in self._running and self._rests.get(queue, 0) <= time.monotonic_ns():
            self.start(queue)

    def start(self, queue: SyncedQueue) -> None:
        """Syncs a queue now, or after the job running under its name."""
        if queue.closed:
            return
        self._used.add(queue)
        if queue.name in self._running:
            self._since[queue] = 0
            return
        self._since.pop(queue, None)
        work = Work(queue.meta_path, *queue.sync_began())
        self._start(queue.name, partial(sync, work), partial(self._ended, queue, work, time.monotonic_ns()))

    def _start(self, name: str, job: Job, ended: Ended) -> None:
        """Runs a job under the name of a queue, then calls ended(error)."""
        if self._run is None:
            ended(job())
            return
        try:
            running = self._run(job)
        except RuntimeError as error:  # no thread can be started
            ended(error)
            return
        self._running[name] = running
        running.add_done_callback(partial(self._job_done, name, ended))

    def _job_done(self, name: str, ended: Ended, job: Future) -> None:
        self._running.pop(name, None)
        ended(job.exception() or job.result())

    def _ended(self, queue: SyncedQueue, work: Work, began: int, error: BaseException | None) -> None:
        """A sync has ended."""
        now = time.monotonic_ns()
        if queue.closed:
            if queue.name in self._dying:
                self._remove_next(queue.name)
            return
        if error is not None:
            self.failures += 1
            self._log.error("DISKQUEUE(%s) failed to sync - %s", queue.name, error)
            self.failing[queue.name] = f"failed to sync {queue.name} - {error}"
            queue.sync_failed(work.done)
            self._since[queue] = time.monotonic_ns()
            return
        self.durations.add(now - began)
        queue.sync_succeeded()
        self.failing.pop(queue.name, None)
        if queue.rests:
            self._rests[queue] = now + min(REST * (now - began), LONGEST_REST_NS)
        if queue in self._since and (self._since[queue] == 0 or (queue.unsynced >= self.every and not queue.rests)):
            self.start(queue)

    def tick(self) -> bool:
        """Starts due syncs, and makes idle queues free their memory, for about a millisecond.

        True: more queues to check; call it again in the next loop iteration.
        """
        until = time.monotonic_ns() + SLICE_NS
        if self._round is None:
            self._round = self._look()
        for _ in self._round:
            if time.monotonic_ns() >= until:
                return True
        self._round = None
        return False

    def _look(self) -> Iterator[None]:
        """One round over all queues, which may change between its steps."""
        now = time.monotonic_ns()
        due = now - self.timeout_ns
        for queue in [queue for queue, until in self._rests.items() if until <= now]:
            if self._rests.pop(queue, None) is not None and queue.unsynced >= self.every:
                self.start_rested(queue)
            yield
        for queue in [queue for queue, since in self._since.items() if since <= due]:
            if len(self._running) >= MOST_RUNNING:
                break
            if queue in self._since:
                self.start(queue)
            yield
        for queue in list(self._used):
            if not queue.was_active() and queue.name not in self._running and queue not in self._since:
                self._used.discard(queue)
                queue.release()
            yield

    # ------------------------------------------------------------------ deleted queues

    def remove(self, done: Done, because: Sequence[str] = ()) -> None:
        """Removes files that no positions refer to. because: files that say so, which are synced first."""
        if self._run is None:
            sync_and_take_away(done, because)
            return
        removal = self._run(partial(sync_and_take_away, done, because))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    def deleted(self, queue: SyncedQueue) -> None:
        """A queue is deleted: removes its positions, then its files."""
        self.forget(queue)
        done = queue.sync_began()[3]
        self._dying.setdefault(queue.name, []).append((queue, done))
        if queue.name not in self._running:
            self._remove_next(queue.name)

    def forget(self, queue: SyncedQueue) -> None:
        """A queue is gone, and another owner removes its files."""
        self._since.pop(queue, None)
        self._rests.pop(queue, None)
        self._used.discard(queue)
        self.failing.pop(queue.name, None)

    def _remove_next(self, name: str) -> None:
        """Removes the files of deleted queues of that name; afterwards a new one of that name may sync."""
        gone = self._dying.pop(name, [])
        done = [(gone[0][0].meta_path, "")]
        for _, files in gone:
            done += files
        self._start(name, partial(take_away, done), partial(self._removed, name, gone))
        if name in self._running:
            self._removals.add(self._running[name])
            self._running[name].add_done_callback(self._removals.discard)

    def _removed(self, name: str, gone: list[tuple[SyncedQueue, Done]], error: BaseException | None) -> None:
        """gone keeps the queues alive: while one exists, a new queue of its name avoids its file numbers."""
        if name in self._dying:
            self._remove_next(name)
            return
        for queue in [queue for queue, since in self._since.items() if since == 0 and queue.name == name]:
            self.start(queue)

    @property
    def runs(self) -> bool:
        """Whether any sync or removal is in progress."""
        return bool(self._running)

    async def removed(self) -> None:
        """Waits until the files of all deleted queues are gone."""
        while True:
            waiting = {self._running[name] for name in self._dying if name in self._running} | self._removals
            if waiting:
                await asyncio.wait(waiting)
                await asyncio.sleep(0)
            elif self.stale_writes:
                await asyncio.sleep(0.001)
            else:
                return

    async def synced(self, queue: SyncedQueue) -> None:
        """Waits for the sync of a queue that start() was just called for."""
        waits = self._since.get(queue) == 0  # after the job running under its name
        for _ in range(1 + waits):
            if queue.name in self._running:
                await asyncio.wait([self._running[queue.name]])
                await asyncio.sleep(0)

    # ------------------------------------------------------------------ shutdown

    async def settle(self) -> None:
        """For a shutdown: waits for syncs in progress and for those of closed queues."""
        self.sync_closed()
        while waiting := self._last.union(self._running.values()):
            await asyncio.wait(waiting)
            await asyncio.sleep(0)

    def finish(self, queue: SyncedQueue) -> None:
        """Syncs a closing queue, with no job running under its name.

        The sync is left to settle(): once all queues are written, a disk syncs many at once in a fraction of the time
        needed one by one, and the folder needs a single sync. Without workers it happens here and now, and raises
        OSError.
        """
        self._since.pop(queue, None)
        self._rests.pop(queue, None)
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
        """Starts the syncs of closed queues: all of them together, step by step."""
        closed, self._closed = self._closed, []
        self._step(closed, [sync_all_data, sync_folder, put_positions, sync_folder, remove_done])

    def _step(self, closed: Closed, steps: list[Step]) -> None:
        """Does the first step for each queue (the folder's once for all), then the next one."""
        if not steps:
            for name, _ in closed:
                self.failing.pop(name, None)
        if not closed or not steps:
            return
        step, following = steps[0], steps[1:]
        jobs = [[item] for item in closed]
        if step is sync_folder:
            folders: dict[str, Closed] = {}
            for item in closed:
                folders.setdefault(os.path.dirname(item[1].meta_path), []).append(item)
            jobs = list(folders.values())
        ended: list[Closed] = []  # those that have not failed, per job

        def job_ended(items: Closed, error: BaseException | None) -> None:
            for name, _ in items if error is not None else ():
                self.failing[name] = f"failed to sync {name} - {error}"
                self._log.error("DISKQUEUE(%s) failed to sync - %s", name, error)
            ended.append(items if error is None else [])
            if len(ended) == len(jobs):
                self._step([item for items in ended for item in items], following)

        for items in jobs:
            self._start_last(partial(attempt, step, items[0][1]), partial(job_ended, items))

    def _start_last(self, job: Job, ended: Ended) -> None:
        """Runs a step of the final syncs, then calls ended(error)."""
        assert self._run is not None, "finish() has synced them"
        try:
            running = self._run(job)
        except RuntimeError as error:  # no thread can be started
            ended(error)
            return
        self._last.add(running)
        running.add_done_callback(partial(self._last_done, ended))

    def _last_done(self, ended: Ended, job: Future) -> None:
        self._last.discard(job)
        ended(job.exception() or job.result())


# ---------------------------------------------------------------------- on a worker thread


def sync(work: Work) -> OSError | None:
    """Does all of it; returns its error."""
    return attempt(whole_sync, work)


def attempt(step: Step, work: Work) -> OSError | None:
    """Does a step; returns its error."""
    try:
        step(work)
    except OSError as error:
        return error
    return None


def whole_sync(work: Work) -> None:
    """All steps. Raises OSError."""
    sync_all_data(work)
    if work.folder:
        sync_folder(work)  # otherwise positions might refer to a file lost in a power failure
    if not work.positions:
        return
    put_positions(work)
    sync_folder(work)  # otherwise a power failure might restore the old positions, whose files are about to be removed
    remove_done(work)


def sync_all_data(work: Work) -> None:
    """Makes the data durable. Raises OSError."""
    for path, rewrite_from in work.data:
        with suppress(FileNotFoundError):  # emptied or deleted meanwhile
            fileio.sync_path(path, rewrite_from)


def remove_done(work: Work) -> None:
    """Removes files that the positions no longer need."""
    take_away(work.done)


def sync_folder(work: Work) -> None:
    """Makes the folder's names durable, if any may be new. Raises OSError."""
    if work.folder or work.positions:
        fileio.sync_path(os.path.dirname(work.meta_path))


def put_positions(work: Work) -> None:
    """Replaces the positions file. Raises OSError.

    If the disk has no room for a second file, the old one is overwritten: its block is already allocated. A crash
    meanwhile leaves unreadable positions; they are then rebuilt from the files, all of which still exist.
    """
    if not work.positions:
        return  # a log has them only when it stops
    temporary = fileio.temporary_of(work.meta_path)
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                write_all(descriptor, work.positions)
                fileio.sync_file(descriptor)
            finally:
                os.close(descriptor)
            fileio.rename_file(temporary, work.meta_path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        overwrite(work)


def overwrite(work: Work) -> None:
    """Overwrites the positions in place. Without old positions or room, none are needed once the files already read are
    gone: the queue starts with the first existing file. Raises OSError."""
    try:
        descriptor = os.open(work.meta_path, os.O_WRONLY)
    except FileNotFoundError:
        if not work.done:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), work.meta_path) from None
        return
    try:
        write_all(descriptor, work.positions)
        os.ftruncate(descriptor, len(work.positions))
        fileio.sync_file(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all data. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest):]


def sync_and_take_away(done: Done, because: Sequence[str]) -> None:
    """If they cannot be synced, only a power failure might make the removed files seem lost."""
    for path in (*because, *{os.path.dirname(path) for path in because}):
        with suppress(OSError):
            fileio.sync_path(path)
    take_away(done)


def take_away(done: Done) -> None:
    """Removes or renames files; failures are repeated at the next start. Renames are durable, removals need not be: a
    file that reappears lies before the positions."""
    for path, becomes in done:
        with suppress(OSError):
            if becomes:
                fileio.rename_file(path, becomes)
            else:
                os.unlink(path)
    for folder in {os.path.dirname(path) for path, becomes in done if becomes}:
        with suppress(OSError):
            fileio.sync_path(folder)


# ====================================================================== manager

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
