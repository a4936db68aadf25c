"""Keeps part of the disk free: notices when less than --min-free-disk is left, and when there is more again.

A thread asks the file system at least once a second, and sooner after large writes: a disk may fill up by gigabytes in
that second. An unresponsive file system delays nothing else; until it responds, writes are subtracted from the last
known free space.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from sys import maxsize

from nsqc.log import Log
from nsqc.store.space import DiskSpace

EVERY_S = 1.0  # longest time between two checks
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
        self._timer = self._loop.call_later(LOW_EVERY_S if self._space.low else EVERY_S, self._tick)

    def _look(self) -> None:
        """The last answer is stale: too many bytes were written since."""
        if not self._asked_at:
            self._question()
        elif self._space.unseen >= self._room:
            self._space.trusted = maxsize
            self._set_low(True, f"{self._space.unseen} bytes were written since the file system last answered")
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
