"""Limits for connections: in total, per address, and pending TLS handshakes.

Clients beyond these configured limits are closed; if descriptors run short, they wait instead (listener.py).
"""

from __future__ import annotations

import sys

from nsqc.log import Log
from nsqc.net.listener import Listeners

CONNECTIONS, PER_ADDRESS, HANDSHAKES = LIMITS = (
    "--max-connections", "--max-connections-per-address", "--max-pending-handshakes")


class ConnectionLimits:
    """Counts the connections of all listeners. Unix sockets count only in total."""

    def __init__(self, log: Log, connections: int = 0, per_address: int = 0, handshakes: int = 0):
        """connections, per_address, handshakes: as of set_limits()."""
        self.set_limits(connections, per_address, handshakes)
        self.connections = 0
        self.handshakes = 0
        self.shaken = {True: 0, False: 0}  # completed handshakes by success
        self.hosts: dict[str, int] = {}  # connections by address; no zero entries
        self._log = log
        self.capacity = sys.maxsize  # connections that the descriptors allow
        self._listeners: Listeners | None = None
        self.refused = dict.fromkeys(LIMITS, 0)  # refused clients by limit

    def set_limits(self, connections: int, per_address: int, handshakes: int) -> None:
        """Applies new limits to new clients; connected clients stay. 0: no limit."""
        self.max_connections = connections
        self.max_per_address = per_address
        self.max_handshakes = handshakes

    def keep_within(self, capacity: int, listeners: Listeners) -> None:
        """Sets the connection count at which the listeners pause."""
        self.capacity = capacity
        self._listeners = listeners
        if self.connections < capacity:
            if listeners.paused:
                listeners.resume()
        elif not listeners.paused:
            listeners.pause(self.connections)

    def enter(self, host: str) -> bool:
        """Counts a new client. False: refused and not counted."""
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
        """Uncounts a client that disconnected."""
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
        """Counts a TLS handshake. False: refused and not counted."""
        if 0 < self.max_handshakes <= self.handshakes:
            return self._refuse(HANDSHAKES, self.max_handshakes, host)
        self.handshakes += 1
        return True

    def end_handshake(self, succeeded: bool) -> None:
        """Uncounts a handshake that ended."""
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
    """The reason for a failed TLS handshake, for the log."""
    reason = getattr(error, "reason", None) or ""
    _, alert, cause = reason.partition("_ALERT_")
    if alert:
        return f"the client ended it: {cause.lower().replace('_', ' ')}"
    return reason.lower().replace("_", " ") or str(error) or type(error).__name__
