"""Keeps consumers' connections alive while their event loop is blocked: a thread answers for the loop."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Protocol

CARE_SECONDS = 0.25
# A loop that has not run for this long is blocked. nsqd waits for two heartbeat intervals of at least a second.
BLOCKED_SECONDS = 1.0


class Watched(Protocol):
    """A connection of a consumer."""

    loop_ran_at: float      # when its loop last ran (monotonic)

    def pulse(self, now: float) -> None:
        """Sends heartbeat replies to nsqd. Called on the thread."""


class Pulse:
    """One thread for all connections of the process, while there are any."""

    def __init__(self) -> None:
        self._watched: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_running = False

    def watch(self, connection: Watched) -> None:
        """Adds a connection until it is forgotten."""
        with self._lock:
            self._watched.add(connection)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="nsqc pulse", daemon=True).start()

    def unwatch(self, connection: Watched) -> None:
        """Removes a connection."""
        with self._lock:
            self._watched.discard(connection)

    def _run(self) -> None:
        while True:
            time.sleep(CARE_SECONDS)
            with self._lock:
                watched = list(self._watched)
                if not watched:
                    self._is_running = False
                    return
            now = time.monotonic()
            for connection in watched:
                if now - connection.loop_ran_at > BLOCKED_SECONDS:
                    connection.pulse(now)


pulse = Pulse()


def _after_fork() -> None:
    """In a forked child: the thread does not exist, and the connections are the parent's."""
    pulse.__init__()    # type: ignore[misc]    # others have imported the object


os.register_at_fork(after_in_child=_after_fork)
