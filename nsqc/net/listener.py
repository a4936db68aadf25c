"""Listening sockets: bound or inherited, paused together, removed with their files.

At the limit of open files libuv accepts new clients and closes them at once. To avoid that, accepting stops while a
few descriptors remain: new clients wait in the accept queues, as with nsqd, and connected clients are served.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from nsqc.log import Log
from nsqc.net.address import address_text, bind, port_of, prepare, remove

if TYPE_CHECKING:
    from nsqc.net.tls import TlsAcceptor


# ====================================================================== pace
# Limits how fast one connection may create topics and channels: creations beyond the rate are delayed, not refused.

# Burst allowed to an idle connection, in seconds of its rate: clients create most names when they start.
BURST_S = 10.0


class Pace:
    """One connection's recent creations. Times are of a monotonic clock, in seconds."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0   # when the rate allows for everything created so far

    def spend(self, count: int, rate: int, now: float) -> float:
        """Counts creations; returns the seconds that the connection must wait. rate: per second; 0: no limit."""
        if rate <= 0:
            return 0.0
        self._until = max(self._until, now) + count / rate
        return max(0.0, self._until - now - BURST_S)


# ====================================================================== acceptor
# Accepts clients on a listening socket through the loop's own server, the fastest path to a protocol.

ProtocolFactory = Callable[[], Any]  # Any: compiled protocols are not subclasses of asyncio's

BACKLOG = 4096
RETRY_S = 1.0
# Newer Pythons remove a unix socket's file with its server, but this server is closed and recreated.
# Any: keyword arguments that older Pythons lack
_KEEP_FILE: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}


class Acceptor:
    """Accepts on a duplicate of the socket: closing it stops accepting, but clients stay in the accept queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket,
                 make_protocol: ProtocolFactory, log: Log):
        self._loop = loop
        self._sock = sock
        self._make_protocol = make_protocol
        self._log = log
        self._server: asyncio.AbstractServer | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._wanted = True
        self._closed = False

    async def start(self) -> None:
        """Starts accepting. Raises OSError."""
        self._server = await self._serve()

    def pause(self) -> None:
        """Stops accepting until resume()."""
        self._wanted = False
        self._drop_server()

    def resume(self) -> None:
        """Starts accepting again."""
        self._wanted = True
        if self._server is None and self._resuming is None and not self._closed:
            self._resuming = self._loop.create_task(self._resume())

    def close(self) -> None:
        """Stops accepting; clients in the accept queue are refused."""
        self._closed = True
        self._wanted = False
        if self._retry is not None:
            self._retry.cancel()
        self._drop_server()
        self._sock.close()

    async def _serve(self) -> asyncio.AbstractServer:
        if self._sock.family == socket.AF_UNIX:
            return await self._loop.create_unix_server(self._make_protocol, sock=self._sock.dup(), backlog=BACKLOG,
                                                       **_KEEP_FILE)
        return await self._loop.create_server(self._make_protocol, sock=self._sock.dup(), backlog=BACKLOG)

    async def _resume(self) -> None:
        try:
            server = await self._serve() if self._wanted else None
        except OSError as error:
            self._log.error("cannot resume accepting - %s", error)
            self._retry = self._loop.call_later(RETRY_S, self.resume)
            return
        finally:
            self._resuming = None
        self._server = server
        if not self._wanted:
            # Paused again meanwhile.
            self._drop_server()

    def _drop_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


# ====================================================================== listener

SETTLED_S = 1.0  # accepting for this long counts as resumed; at the limit each disconnect lets one client in

Accepting: TypeAlias = "Acceptor | TlsAcceptor"


class Listener:
    """One listening socket, bound by the constructor: an address in use is detected before anything else happens."""

    def __init__(self, name: str, address: str, log: Log, inherited: socket.socket | None = None):
        """Uses the inherited socket if any, otherwise binds the address. Raises OSError or ValueError."""
        self.name = name  # TCP, HTTP or HTTPS
        self._log = log
        self.sock = inherited or bind(address)
        prepare(self.sock)
        # The file of an inherited socket stays: the process that created it owns it.
        self._path = "" if inherited else address
        self._acceptor: Accepting | None = None
        self._listeners: Listeners | None = None
        self.address = address_text(self.sock)
        self.port = port_of(self.sock)  # -1: a unix socket

    async def start(self, acceptor: Accepting, listeners: Listeners) -> None:
        """Starts accepting. Raises OSError."""
        try:
            await acceptor.start()
        except BaseException:
            self.sock.close()
            raise
        self._acceptor = acceptor
        self._listeners = listeners
        listeners.add(acceptor)
        self._log.info("%s: listening on %s", self.name, self.address)

    def close(self) -> None:
        """Stops accepting, and removes a unix socket's file."""
        self._log.info("%s: closing %s", self.name, self.address)
        if self.port < 0:
            remove(self.sock, self._path)
        if self._acceptor is None or self._listeners is None:
            self.sock.close()
        else:
            self._listeners.remove(self._acceptor)
            self._acceptor.close()


class Listeners:
    """All listeners of a daemon, which pause together. ConnectionLimits counts the clients and decides when."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Log):
        self.paused = False
        self._loop = loop
        self._log = log
        self._acceptors: list[Accepting] = []
        self._report: asyncio.TimerHandle | None = None  # due after resume(): logs that accepting has resumed
        self._reported = False  # the pause was logged

    def add(self, acceptor: Accepting) -> None:
        """Adds a listener, which pauses with the others."""
        self._acceptors.append(acceptor)
        if self.paused:
            acceptor.pause()

    def remove(self, acceptor: Accepting) -> None:
        """Removes a closed listener."""
        self._acceptors.remove(acceptor)

    def pause(self, connections: int) -> None:
        """Stops accepting until resume(); connections: the current count, for the log."""
        self.paused = True
        for acceptor in self._acceptors:
            acceptor.pause()
        if self._report is not None:
            self._report.cancel()
            self._report = None
        if not self._reported:
            self._reported = True
            self._log.warn("accepting stops at %d connections: the limit of open files allows no more; "
                           "new clients wait until others disconnect", connections)

    def resume(self) -> None:
        """Starts accepting again."""
        self.paused = False
        for acceptor in self._acceptors:
            acceptor.resume()
        self._report = self._loop.call_later(SETTLED_S, self._report_resumed)

    def stop(self) -> None:
        """Stops logging."""
        if self._report is not None:
            self._report.cancel()

    def _report_resumed(self) -> None:
        self._report = None
        self._reported = False
        self._log.info("accepting resumes: file descriptors are available again")


# ====================================================================== limits
# Limits for connections: in total, per address, and pending TLS handshakes.
#
# Clients beyond these configured limits are closed; if descriptors run short, they wait instead (listener.py).

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


# ====================================================================== accepting
# Whether new clients are accepted.

def not_accepting(limits: ConnectionLimits, listeners: Listeners) -> str | None:
    """The reason why new clients wait or are refused; None: they are accepted."""
    if listeners.paused:
        return "new clients wait: the limit of open files allows no more"
    if 0 < limits.max_connections <= limits.connections:
        return f"new clients are refused: --max-connections {limits.max_connections} reached"
    return None
