"""Runs a consumer's dials and lookups on threads, so that an unresponsive server delays nothing else."""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

from nsqc.client.connection import Connection

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Dialer(Generic[K, T]):
    """Runs calls on threads, one at a time per key, and wakes a selector when one has ended. All methods are for
    one thread, except wake()."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._running: set[K] = set()
        self._done: deque[tuple[K, T | Exception]] = deque()
        self._lock = threading.Lock()       # of _done and _closed
        self._closed = self._woken = False
        self._awake, self._wake = socket.socketpair()
        self._awake.setblocking(False)
        self._wake.setblocking(False)
        selector.register(self._awake, selectors.EVENT_READ)

    def start(self, key: K, call: Callable[[], T]) -> None:
        """Begins a call, unless one for this key is running."""
        if key not in self._running:
            self._running.add(key)
            # A daemon thread: the process does not wait for its timeout at exit.
            threading.Thread(target=self._run, args=(key, call), name="nsqc dialer", daemon=True).start()

    def finished(self) -> list[tuple[K, T | Exception]]:
        """The results of calls that ended since the last time, or their exceptions."""
        if self._woken:
            self._woken = False
            with suppress(BlockingIOError):
                self._awake.recv(4096)
        if not self._done:
            return []
        with self._lock:
            found = list(self._done)
            self._done.clear()
        self._running.difference_update(key for key, _ in found)
        return found

    def wake(self) -> None:
        """Wakes the selector. Thread-safe; callable from signal handlers."""
        self._woken = True
        with suppress(OSError):     # it is awake already, or closed
            self._wake.send(b".")

    def close(self) -> None:
        """Closes connections that were not collected, and later ones."""
        with self._lock:
            self._closed = True
            self._awake.close()
            self._wake.close()
        for _, outcome in self._done:
            self._discard(outcome)
        self._done.clear()

    def _run(self, key: K, call: Callable[[], T]) -> None:
        outcome: T | Exception
        try:
            outcome = call()
        except Exception as error:      # any exception: it is raised where the consumer is used
            outcome = error
        with self._lock:
            if not self._closed:
                self._done.append((key, outcome))
                self.wake()
                return
        self._discard(outcome)

    @staticmethod
    def _discard(outcome: T | Exception) -> None:
        if isinstance(outcome, Connection):
            outcome.close()
