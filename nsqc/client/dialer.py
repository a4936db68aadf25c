"""Connections that are made by threads, so that an nsqd that does not answer holds up no other one."""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable

from nsqc.client.connection import Connection
from nsqc.client.peers import Peer

# What came of it: a connection, or why there is none.
Outcome = tuple[Peer[Connection], Connection | Exception]


class Dialer:
    """Wakes a selector when a connection is there, or has failed. All calls from one thread."""

    def __init__(self, connect: Callable[[str], Connection], selector: selectors.BaseSelector) -> None:
        """connect: makes a connection to an address, on a thread of its own."""
        self._connect = connect
        self._dialing: set[Peer[Connection]] = set()
        self._done: deque[Outcome] = deque()
        self._lock = threading.Lock()       # of _done and _closed
        self._closed = False
        self._awake, self._wake = socket.socketpair()
        self._awake.setblocking(False)
        self._wake.setblocking(False)
        selector.register(self._awake, selectors.EVENT_READ)

    def dial(self, peer: Peer[Connection]) -> None:
        """Begins to connect to a peer, unless it has begun."""
        if peer not in self._dialing:
            self._dialing.add(peer)
            # A daemon thread: the end of the process does not wait for its time-out.
            threading.Thread(target=self._run, args=(peer,), name=f"nsqc-{peer.address}", daemon=True).start()

    def finished(self) -> list[Outcome]:
        """What has come of it since the last call."""
        if not self._done:
            return []
        with self._lock:
            found = list(self._done)
            self._done.clear()
            self._awake.recv(4096)      # a byte for each: fewer than that at once
        self._dialing.difference_update(peer for peer, _ in found)
        return found

    def close(self) -> None:
        """Closes connections that nobody has taken, and those that come later."""
        with self._lock:
            self._closed = True
            self._awake.close()
            self._wake.close()
        for _, outcome in self._done:
            if isinstance(outcome, Connection):
                outcome.close()
        self._done.clear()

    def _run(self, peer: Peer[Connection]) -> None:
        outcome: Connection | Exception
        try:
            outcome = self._connect(peer.address)
        except Exception as error:      # of whatever kind: it is raised where the consumer is used
            outcome = error
        with self._lock:
            if not self._closed:
                self._done.append((peer, outcome))
                self._wake.send(b".")
                return
        if isinstance(outcome, Connection):
            outcome.close()
