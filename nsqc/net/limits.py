"""How many clients are let in: in total, from one address, and in the middle of a TLS handshake.

Beyond these limits, which an operator has set, a client is closed; where descriptors run short, it waits
(accepting.py).
"""

from __future__ import annotations

import sys
from time import monotonic
from typing import Any

LOG_EVERY_S = 1.0


class ConnectionLimits:
    """Counts the connections of all listeners. Unix sockets count in total only."""

    def __init__(self, options: Any, log: Any):
        self.set_limits(options)
        self.connections = 0
        self.handshakes = 0
        self.hosts: dict[str, int] = {}  # connections by address; only those that have any
        self._log = log
        self.capacity = sys.maxsize  # connections for which there are descriptors
        self._doors: Any = None
        self._refused: dict[str, int] = {}  # since the last line about that limit
        self._next_line: dict[str, float] = {}

    def set_limits(self, options: Any) -> None:
        """For clients that come from now on; who is in stays."""
        self.max_connections = options.max_connections
        self.max_per_address = options.max_connections_per_address
        self.max_handshakes = options.max_pending_handshakes

    def keep_within(self, capacity: int, doors: Any) -> None:
        """From now on doors (nsqc.net.accepting.Doors) are shut while there are that many clients or more."""
        self.capacity = capacity
        self._doors = doors
        if self.connections < capacity:
            if doors.shut:
                doors.open()
        elif not doors.shut:
            doors.close(self.connections)

    def enter(self, host: str) -> bool:
        """A client connects. False: it must go, and has not been counted."""
        if 0 < self.max_connections <= self.connections:
            return self._refuse("--max-connections", self.max_connections, host)
        if host:
            count = self.hosts.get(host, 0)
            if 0 < self.max_per_address <= count:
                return self._refuse("--max-connections-per-address", self.max_per_address, host)
            self.hosts[host] = count + 1
        self.connections += 1
        if self.connections >= self.capacity and not self._doors.shut:
            self._doors.close(self.connections)
        return True

    def leave(self, host: str) -> None:
        """A client that had entered is gone."""
        self.connections -= 1
        if self.connections < self.capacity and self._doors is not None and self._doors.shut:
            self._doors.open()
        if host:
            left = self.hosts[host] - 1
            if left:
                self.hosts[host] = left
            else:
                del self.hosts[host]

    def begin_handshake(self, host: str) -> bool:
        """A client begins with TLS. False: it must go, and has not been counted."""
        if 0 < self.max_handshakes <= self.handshakes:
            return self._refuse("--max-pending-handshakes", self.max_handshakes, host)
        self.handshakes += 1
        return True

    def end_handshake(self) -> None:
        """A handshake that had begun has come to an end, good or bad."""
        self.handshakes -= 1

    def _refuse(self, limit: str, value: int, host: str) -> bool:
        """Says so, but not more often than once a second for a limit."""
        count = self._refused.get(limit, 0) + 1
        now = monotonic()
        if now < self._next_line.get(limit, 0.0):
            self._refused[limit] = count
            return False
        self._next_line[limit] = now + LOG_EVERY_S
        self._refused[limit] = 0
        more = f" ({count} since the last such line)" if count > 1 else ""
        self._log.warn("client(%s) refused: %s %d reached%s", host or "@", limit, value, more)
        return False


def host_of(peer: Any) -> str:
    """The address to count under; empty for a unix socket."""
    if not isinstance(peer, tuple):
        return ""
    return peer[0].removeprefix("::ffff:")


def handshake_error(error: BaseException) -> str:
    """Why a TLS handshake has failed, for the log."""
    reason = getattr(error, "reason", None) or ""
    _, alert, what = reason.partition("_ALERT_")
    if alert:
        return f"the client ended it: {what.lower().replace('_', ' ')}"
    return reason.lower().replace("_", " ") or str(error) or type(error).__name__
