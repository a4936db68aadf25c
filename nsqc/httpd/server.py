"""One HTTP or HTTPS listener, from the first connection to the last answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nsqc.httpd.connection import Connection
from nsqc.httpd.site import ServerState, Site
from nsqc.net.listener import Accepting, Acceptor, ConnectionLimits, Listener, Listeners
from nsqc.net.tls import Certificates

if TYPE_CHECKING:
    from nsqc.net.tls import TlsAcceptor

# Seconds: interval of the check for incomplete requests, and how long close() waits for clients to read their answers,
# or only to confirm the end of TLS.
_SWEEP_SECONDS = 1.0
_CLOSE_SECONDS = 1.0
_FAREWELL_SECONDS = 0.1
_LAST_ITERATIONS = 4        # for pending answers to notice that their clients are gone
_HANDSHAKES_SECONDS = 0.5   # how long close() waits for pending TLS handshakes


class Server:
    """Serves the app on a listener.

    With certificates it uses TLS. With tls_required it refuses every request.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, app: Site, listener: Listener, *,
                 limits: ConnectionLimits, listeners: Listeners, certificates: Certificates | None = None,
                 tls_required: bool = False) -> None:
        self.app = app
        self.name = listener.name                   # HTTP or HTTPS
        self.address = listener.address
        self.port = listener.port                   # -1: a unix socket
        self.now = loop.time
        self.header_timeout = app.header_timeout / 1e9
        self.connections: set[Connection] = set()
        self.unfinished: set[Connection] = set()    # with a deadline: new, or in the middle of a request
        self.state = ServerState(loop, tls=certificates is not None, tls_required=tls_required)
        self._loop = loop
        self._limits = limits
        self._listener = listener
        self._listeners = listeners
        self._tls: TlsAcceptor | None = None
        self._acceptor: Accepting
        if certificates is None:
            self._acceptor = Acceptor(loop, listener.sock, self._make_connection, app.log)
        else:
            from nsqc.net.tls import TlsAcceptor  # here: only needed with a certificate

            self._acceptor = self._tls = TlsAcceptor(
                loop, listener.sock, self._make_connection, certificates, limits, app.log)
        self._sweep: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Accepts clients; raises OSError."""
        # First, since /info then knows the port, and a client may connect before this call returns.
        self.app.servers.append(self)
        try:
            await self._listener.start(self._acceptor, self._listeners)
        except BaseException:
            self.app.servers.remove(self)
            raise

    async def close(self) -> None:
        """Stops accepting, sends pending answers, and closes every connection."""
        if self.state.closing:
            return
        self.state.closing = True
        self._listener.close()
        if self._tls is not None:
            await self._tls.settle(_HANDSHAKES_SECONDS)
        # Accepted connections get their connection_made() and first input before they are checked for idleness.
        for _ in range(2):
            await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.end_soon()
        if self.connections:
            self._idle = self._loop.create_future()
            await asyncio.wait([self._idle], timeout=_FAREWELL_SECONDS)
            if any(connection.has_work() for connection in self.connections):
                await asyncio.wait([self._idle], timeout=_CLOSE_SECONDS - _FAREWELL_SECONDS)
            for connection in list(self.connections):
                connection.transport.abort()
            for _ in range(_LAST_ITERATIONS):
                await asyncio.sleep(0)
        if self._sweep is not None:
            self._sweep.cancel()
        self.app.servers.remove(self)

    def _make_connection(self) -> Connection:
        return Connection(self)

    # ------------------------------------------------------------------ for connections

    def admit(self, connection: Connection, host: str) -> bool:
        """Counts a new client; False: a limit is reached, close it."""
        if not self._limits.enter(host):
            return False
        self.connections.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._limits.leave(connection.host)
        self.unfinished.discard(connection)
        if self._idle is not None and not self.connections and not self._idle.done():
            self._idle.set_result(None)

    def watch(self, connection: Connection) -> None:
        """A connection has a deadline: it is new, or its request is incomplete."""
        self.unfinished.add(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._interval(), self._check_deadlines)

    def _interval(self) -> float:
        return min(_SWEEP_SECONDS, self.header_timeout / 4)

    def _check_deadlines(self) -> None:
        now = self.now()
        for connection in list(self.unfinished):
            if connection.check_deadline(now):
                self.unfinished.discard(connection)
        self._sweep = self._loop.call_later(self._interval(), self._check_deadlines) if self.unfinished else None
