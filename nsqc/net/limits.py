"""How many clients may connect: in total, from one address, and in the middle of a TLS handshake.

Clients beyond these limits, which the operator sets, are closed; if descriptors run short, they wait (listener.py).
"""

from __future__ import annotations

import sys
from typing import Protocol

from nsqc.log import Log
from nsqc.net.listener import Listeners

CONNECTIONS, PER_ADDRESS, HANDSHAKES = LIMITS = (
    "--max-connections", "--max-connections-per-address", "--max-pending-handshakes")


class LimitOptions(Protocol):
    """The limits among the daemon's options; 0: none."""

    @property
    def max_connections(self) -> int: ...

    @property
    def max_connections_per_address(self) -> int: ...

    @property
    def max_pending_handshakes(self) -> int: ...


class ConnectionLimits:
    """Counts the connections of all listeners. Unix sockets count in total only."""

    def __init__(self, options: LimitOptions, log: Log):
        self.set_limits(options)
        self.connections = 0
        self.handshakes = 0
        self.shaken = {True: 0, False: 0}  # handshakes that have ended, by whether they have succeeded
        self.hosts: dict[str, int] = {}  # connections by address; only those with any
        self._log = log
        self.capacity = sys.maxsize  # connections for which there are descriptors
        self._listeners: Listeners | None = None
        self.refused = dict.fromkeys(LIMITS, 0)  # clients, by the limit

    def set_limits(self, options: LimitOptions) -> None:
        """For new clients; those already connected stay."""
        self.max_connections = options.max_connections
        self.max_per_address = options.max_connections_per_address
        self.max_handshakes = options.max_pending_handshakes

    def keep_within(self, capacity: int, listeners: Listeners) -> None:
        """From now on the listeners pause while there are that many clients or more."""
        self.capacity = capacity
        self._listeners = listeners
        if self.connections < capacity:
            if listeners.paused:
                listeners.resume()
        elif not listeners.paused:
            listeners.pause(self.connections)

    def enter(self, host: str) -> bool:
        """Counts a new client. False: it must go, and is not counted."""
        if 0 < self.max_connections <= self.connections:
            return self._refuse(CONNECTIONS, self.max_connections, host)
        if host:
            count = self.hosts.get(host, 0)
            if 0 < self.max_per_address <= count:
                return self._refuse(PER_ADDRESS, self.max_per_address, host)
            self.hosts[host] = count + 1
        self.connections += 1
        if self.connections >= self.capacity and self._listeners is not None and not self._listeners.paused:
            self._listeners.pause(self.connections)
        return True

    def leave(self, host: str) -> None:
        """A client that was counted has left."""
        self.connections -= 1
        if self.connections < self.capacity and self._listeners is not None and self._listeners.paused:
            self._listeners.resume()
        if host:
            left = self.hosts[host] - 1
            if left:
                self.hosts[host] = left
            else:
                del self.hosts[host]

    def begin_handshake(self, host: str) -> bool:
        """Counts a TLS handshake. False: the client must go, and the handshake is not counted."""
        if 0 < self.max_handshakes <= self.handshakes:
            return self._refuse(HANDSHAKES, self.max_handshakes, host)
        self.handshakes += 1
        return True

    def end_handshake(self, succeeded: bool) -> None:
        """A handshake that was counted has ended."""
        self.handshakes -= 1
        self.shaken[succeeded] += 1

    def _refuse(self, limit: str, value: int, host: str) -> bool:
        self.refused[limit] += 1
        self._log.warn("client(%s) refused: %s %d reached", host or "@", limit, value, kind=limit)
        return False


def host_of(peer: object) -> str:
    """The address to count under; empty for a unix socket."""
    if not isinstance(peer, tuple):
        return ""
    host: str = peer[0]
    return host.removeprefix("::ffff:")


def handshake_error(error: BaseException) -> str:
    """Why a TLS handshake failed, for the log."""
    reason = getattr(error, "reason", None) or ""
    _, alert, cause = reason.partition("_ALERT_")
    if alert:
        return f"the client ended it: {cause.lower().replace('_', ' ')}"
    return reason.lower().replace("_", " ") or str(error) or type(error).__name__
