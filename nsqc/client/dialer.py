"""Runs dials and lookups on threads, so that an unresponsive server delays nothing else."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from nsqc.client.connection import Connection

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Dialer(Generic[K, T]):
    """Runs calls on threads: one at a time per key, and up to `most`. wake: called on a thread when its call has ended.
    All methods are for one thread."""

    def __init__(self, wake: Callable[[], None], most: float = math.inf) -> None:
        self._wake, self._most = wake, most
        self._running: set[K] = set()
        self._done: deque[tuple[K, T | Exception]] = deque()
        self._lock = threading.Lock()       # of _done and _closed
        self._closed = False

    @property
    def is_busy(self) -> bool:
        """Whether a call is running, or its result not collected yet."""
        return bool(self._running)

    def start(self, key: K, call: Callable[[], T]) -> bool:
        """Begins a call, unless one for this key is running, or as many as allowed; returns whether it has begun."""
        if key in self._running or len(self._running) >= self._most:
            return False
        self._running.add(key)
        # A daemon thread: the process does not wait for its timeout at exit.
        threading.Thread(target=self._run, args=(key, call), name="nsqc dialer", daemon=True).start()
        return True

    def finished(self) -> list[tuple[K, T | Exception]]:
        """The results of calls that ended since the last time, or their exceptions."""
        if not self._done:
            return []
        with self._lock:
            found = list(self._done)
            self._done.clear()
        self._running.difference_update(key for key, _ in found)
        return found

    def close(self) -> None:
        """Closes connections that were not collected, and later ones."""
        with self._lock:
            self._closed = True
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
                self._wake()
                return
        self._discard(outcome)

    @staticmethod
    def _discard(outcome: T | Exception) -> None:
        if isinstance(outcome, Connection):
            outcome.close()


def subscribed(connection: Connection, topic: str, channel: str) -> Connection:
    """The connection, consuming, for an owner that reconnects; closed after a failure. Raises as subscribe()."""
    connection.tolerant = True
    try:
        connection.subscribe(topic, channel)
    except BaseException:
        connection.close()
        raise
    return connection
