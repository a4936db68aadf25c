"""The answer to /ping: whether queues can be written; notices when they are writable again."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from queue import SimpleQueue
from sys import maxsize
from time import monotonic

from nsqc.broker.broker import Broker
from nsqc.broker.channel import Channel
from nsqc.broker.topic import Topic
from nsqc.log import Log
from nsqc.store.work import DiskSpace

# ====================================================================== writable
# Checks whether files can be written in the data path, without blocking callers on a slow disk.

FRESH_S = 1.0       # validity of an answer: bounds how often the disk is tried
PATIENCE_S = 1.0    # timeout, after which the disk counts as unwritable
FILE = "nsqc-ready.tmp"
BYTES = 4096


class WritableProbe:
    """Writes a small file and removes it, on its own thread, so a hanging disk blocks no worker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, data_path: str) -> None:
        self._loop = loop
        self._data_path = data_path
        self._reason: str | None = None         # the last answer
        self._until = 0.0                       # monotonic: validity of the answer
        self._pending: asyncio.Future[None] | None = None

    async def reason(self) -> str | None:
        """Why nothing can be written; None: it can."""
        if monotonic() < self._until:
            return self._reason
        pending = self._pending
        if pending is None:
            pending = self._pending = self._loop.create_future()
            try:
                threading.Thread(target=self._try, name="nsqc-probe", daemon=True).start()
            except RuntimeError as error:
                self._answered(f"the data path cannot be tried: {error}")
        await asyncio.wait([pending], timeout=PATIENCE_S)
        if not pending.done():
            return f"the data path has not taken a file within {PATIENCE_S:g} s"
        return self._reason

    def _try(self) -> None:
        """Runs on the thread."""
        error = write_error(os.path.join(self._data_path, FILE))
        reason = None if error is None else f"the data path cannot be written: {error.strerror or error}"
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._answered, reason)

    def _answered(self, reason: str | None) -> None:
        self._reason = reason
        self._until = monotonic() + FRESH_S
        pending, self._pending = self._pending, None
        if pending is not None and not pending.done():
            pending.set_result(None)


def write_error(path: str) -> OSError | None:
    """The error of writing a file there and removing it; None: both work. Without a sync: a probe should not load a
    busy disk, and failing syncs are reported elsewhere."""
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)     # left by a probe that a kill interrupted
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if os.write(descriptor, bytes(BYTES)) < BYTES:
                return OSError("short write")
        finally:
            os.close(descriptor)
            os.unlink(path)
    except OSError as error:
        return error
    return None


# ====================================================================== space
# Keeps part of the disk free: notices when less than --min-free-disk is left, and when there is more again.
#
# A thread asks the file system at least once a second, and sooner after large writes: a disk may fill up by gigabytes
# in that second. An unresponsive file system delays nothing else; until it responds, writes are subtracted from the
# last known free space.

CHECK_SPACE_S = 1.0  # longest time between two checks
LOW_EVERY_S = 0.25  # while the disk is low
SILENT_S = 10.0  # without an answer, before that is logged
DEFAULT_BYTES = 1 << 30  # for --min-free-disk=-1, or a twentieth of the file system if that is smaller
DEFAULT_PART = 20
LEAST_STEP = 1 << 20  # bytes written between two checks, if this much is free beyond the limit
HEALED_PART = 16  # publishes are accepted again with a sixteenth more than the limit free, so that this does not flap

Ask = Callable[[str], os.statvfs_result]


class SpaceWatch:
    """Sets DiskSpace.low for the data path."""

    def __init__(self, loop: asyncio.AbstractEventLoop, data_path: str, space: DiskSpace, limit: int, log: Log,
                 ask: Ask = os.statvfs):
        """limit: --min-free-disk, bytes; 0: none; -1: see DEFAULT_BYTES."""
        self._loop = loop
        self._data_path = data_path
        self._space = space
        self._limit = limit
        self._log = log
        self._ask = ask
        self._questions: SimpleQueue[bool] = SimpleQueue()  # for the thread; False: end
        self._thread: threading.Thread | None = None
        self._asked_at = 0.0  # loop time; 0: no question is pending
        self._asked_unseen = 0  # space.unseen at that time
        self._room = maxsize  # bytes that were free beyond the limit at the last answer
        self._failing = False  # the last answer was an error
        self._silent = False  # the missing answer was logged
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._last = (-1, -1)  # free bytes and size, of the last answer
        self._needed = 0  # the limit in bytes

    def start(self) -> None:
        """Begins to watch."""
        self._space.look = self._look
        self._tick()

    def close(self) -> None:
        """Stops; abandons a thread that waits for the file system."""
        self._closed = True
        self._space.look = None
        if self._timer is not None:
            self._timer.cancel()
        self._questions.put(False)

    def set_limit(self, limit: int) -> None:
        """As in the constructor."""
        if limit == self._limit:
            return
        self._limit = limit
        self._room = maxsize
        if limit == 0:
            self._space.trusted = maxsize
            self._set_low(False, "--min-free-disk is 0")
        elif self._asked_at == 0 and self._space.look is not None:
            self._question()

    def last(self) -> tuple[int, int, int]:
        """Free bytes and size of the file system at the last check, and the limit; -1: not known yet."""
        if self._limit == 0 and self._asked_at == 0 and self._space.look is not None:
            self._question()  # nothing else asks; the next call has the answer
        return *self._last, self._needed if self._limit else 0

    def reason(self) -> str | None:
        """The error that /ping reports; None: there is room."""
        return self._space.reason if self._space.low else None

    def _tick(self) -> None:
        if self._limit:
            self._question()
        if self._asked_at and not self._silent and self._loop.time() - self._asked_at >= SILENT_S:
            self._silent = True
            self._log.warn("DISKSPACE: %s has not reported its free space for %d s", self._data_path, SILENT_S)
        self._timer = self._loop.call_later(LOW_EVERY_S if self._space.low else CHECK_SPACE_S, self._tick)

    def _look(self) -> None:
        """The last answer is stale: too many bytes were written since."""
        if not self._asked_at:
            self._question()
        elif self._space.unseen >= self._room:
            self._space.trusted = maxsize
            self._set_low(True, f"{self._last[0]} bytes were free in {self._data_path} when the file system last "
                          f"answered, {self._space.unseen} were written since, --min-free-disk is {self._needed}")
            return
        self._space.trusted = max(self._room, self._space.unseen + 1)

    def _question(self) -> None:
        """Has the thread ask, unless it already waits for an answer."""
        if self._asked_at:
            return
        if self._thread is None:
            thread = threading.Thread(target=self._answer, name="nsqc-space", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # retried with the next question
                self._failed(error)
                return
            self._thread = thread
        self._asked_at = self._loop.time()
        self._asked_unseen = self._space.unseen
        self._questions.put(True)

    def _answer(self) -> None:
        """Runs on the thread."""
        while self._questions.get():
            answer: os.statvfs_result | Exception
            try:
                answer = self._ask(self._data_path)
            except Exception as error:
                answer = error
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._answered, answer)

    def _answered(self, answer: os.statvfs_result | Exception) -> None:
        self._asked_at = 0.0
        self._silent = False
        if not isinstance(answer, Exception):
            self._last = (answer.f_bavail * answer.f_frsize, answer.f_blocks * answer.f_frsize)
        if self._closed or self._limit == 0:
            return
        if isinstance(answer, Exception):
            self._failed(answer)
            return
        self._failing = False
        free = answer.f_bavail * answer.f_frsize
        limit = self._limit
        if limit < 0:
            limit = min(DEFAULT_BYTES, answer.f_blocks * answer.f_frsize // DEFAULT_PART)
        self._needed = limit
        self._space.reason = f"no space left: less than {limit} bytes are free (--min-free-disk)"
        self._space.unseen -= self._asked_unseen
        self._room = free - limit
        low = free < (limit + limit // HEALED_PART if self._space.low else limit)
        self._set_low(low, f"{free} bytes are free in {self._data_path}, --min-free-disk is {limit}")
        self._space.trusted = maxsize if low else max(self._room // 2, min(self._room, LEAST_STEP))

    def _failed(self, error: Exception) -> None:
        if not self._failing:
            self._log.error("DISKSPACE: cannot ask how much is free in %s - %s", self._data_path, error)
        self._failing = True

    def _set_low(self, low: bool, why: str) -> None:
        if low == self._space.low:
            return
        self._space.low = low
        if low:
            self._log.error("DISKSPACE: publishes that need the disk are refused - %s", why)
        else:
            self._log.info("DISKSPACE: publishes are accepted again - %s", why)


# ====================================================================== retention
# Periodic work on logs: removes segments beyond their rules, and applies changed rules.

CHECK_RETENTION_S = 0.5  # between two checks of the logs with more than one segment


class Retention:
    """Maintains a broker's logs, in slices."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker, log: Log):
        self._loop = loop
        self._broker = broker
        self._log = log
        self._work: list[Iterator[None]] = []
        self._timer = loop.call_later(CHECK_RETENTION_S, self._tick)
        self._running = False
        self._closed = False

    def rule_changed(self, name: bytes | None) -> None:
        """The rule of a topic has changed; None: all topics may be affected."""
        self._begin(self._broker.rule_changed(name))

    def channel_rule_changed(self, name: bytes | None) -> None:
        """The rule of a channel, TOPIC/CHANNEL, has changed; None: all channels may be affected."""
        self._begin(self._broker.channel_rule_changed(name))

    def close(self) -> None:
        """Stops the checks."""
        self._closed = True
        self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(CHECK_RETENTION_S, self._tick)
        if not self._work:
            self._begin(self._broker.retain())

    def _begin(self, work: Iterator[None]) -> None:
        self._work.append(work)
        if not self._running:
            self._running = True
            self._broker.slicer.call(self._step)

    def _step(self) -> bool:
        """Runs a slice; returns whether work remains."""
        while self._work and not self._closed:
            try:
                if next(self._work[0], self) is self:
                    self._work.pop(0)
            except Exception as error:
                # The next check starts over: a generator that has raised cannot continue.
                self._work.pop(0)
                self._log.error("LOG: failed to remove segments or to follow a rule - %r", error)
            if self._broker.slicer.is_over():
                return True
        self._running = False
        return False


# ====================================================================== health

RETRY_S = 0.25
PROBE_BYTES = 65536


class WriteHealth:
    """Collects failed writes, retries them, and reports when all have healed.

    A channel that cannot write keeps its messages and is retried here until it can. A topic that could not write has
    refused the messages and has nothing to retry, so a probe file shows when there is room again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, log: Log,
                 failing_sync: Callable[[], str | None], low_space: Callable[[], str | None] = lambda: None):
        """failing_sync: why syncs fail; None while they succeed. low_space: the same for free space on the disk."""
        self._loop = loop
        self._workers = workers
        self._data_path = data_path
        self._log = log
        self._failing_sync = failing_sync
        self._low_space = low_space
        self._stuck: dict[Channel, None] = {}
        self._refusing: Topic | None = None
        self._reason: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.failing = False  # a write has failed, and not all have healed

    def health(self) -> str:
        """OK, or NOK and the reason."""
        reason = self._reason or self._failing_sync() or self._low_space()
        return "OK" if reason is None else f"NOK - {reason}"

    def failed(self, topic: Topic, channel: Channel | None, error: int) -> None:
        """A topic, or one of its channels, could not write its queue; error is the errno."""
        name = topic.name.decode() if channel is None else f"{topic.name.decode()}:{channel.name.decode()}"
        reason = f"failed to write {name} - {os.strerror(error)}"
        if reason != self._reason:
            self._log.error("DISKQUEUE(%s): write failed - %s", name, os.strerror(error))
        self._reason = reason
        self.failing = True
        if channel is None:
            self._refusing = topic
        else:
            self._stuck[channel] = None
        self._watch()

    def healed(self, topic: Topic | None, channel: Channel | None) -> bool:
        """A failed queue was written. Both None: another one was; as with nsqd, that clears the error of a topic.

        Returns whether others still fail.
        """
        if channel is not None:
            self._stuck.pop(channel, None)
        elif topic is None or self._refusing is topic:
            self._refusing = None
        self._settle()
        return self.failing

    def forget(self, channel: Channel) -> None:
        """The channel is deleted; forgets its failure."""
        if channel in self._stuck:
            del self._stuck[channel]
            self._settle()

    def close(self) -> None:
        """Stops watching."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _settle(self) -> None:
        if self.failing and not self._stuck and self._refusing is None:
            self._log.info("DISKQUEUE: writes succeed again")
            self._reason = None
            self.failing = False

    def _watch(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        for channel in list(self._stuck):
            channel.retry()
        if self._refusing is not None and not self._stuck:
            topic = self._refusing
            probe = self._loop.run_in_executor(self._workers, probe_error, self._data_path, topic.probe_path)
            probe.add_done_callback(lambda done: self._probed(topic, done))
        if self.failing:
            self._watch()

    def _probed(self, topic: Topic, done: asyncio.Future[OSError | None]) -> None:
        if not done.cancelled() and done.exception() is None and done.result() is None and self._refusing is topic:
            self._refusing = None
            self._settle()


def probe_error(data_path: str, queue_file: str) -> OSError | None:
    """The error of writing a file in data_path, or of opening queue_file for writing; None: both work."""
    import tempfile  # only here, and on a thread

    try:
        with suppress(FileNotFoundError):  # not created here: the queue may be creating it
            os.close(os.open(queue_file, os.O_RDWR))
        descriptor, path = tempfile.mkstemp(prefix="nsqc-probe-", suffix=".tmp", dir=data_path)
        try:
            if os.write(descriptor, bytes(PROBE_BYTES)) < PROBE_BYTES:
                return OSError("short write")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            with suppress(OSError):
                os.unlink(path)
    except OSError as error:
        return error
    return None
