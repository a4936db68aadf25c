"""HTTP listeners: what their connections share, and their life from the first connection to the last answer."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any

from nsqc.broker.stats import MemoryWatch
from nsqc.httpd.connection import Connection
from nsqc.httpd.publish import plain_target
from nsqc.httpd.reply import Dates
from nsqc.httpd.request import Request
from nsqc.net.accepting import Door, Doors
from nsqc.net.address import address_text, bind, port_of, prepare, remove
from nsqc.net.limits import ConnectionLimits
from nsqc.net.tlslistener import TlsListener
from nsqc.options.durations import format_duration

_KEPT_TARGETS = 4096
_KEPT_HEAD_BYTES = 1024
# Seconds: how often unfinished requests are looked at, and how long close() waits for clients to read their answers, or
# just to confirm the end of TLS.
_SWEEP_SECONDS = 1.0
_CLOSE_SECONDS = 1.0
_FAREWELL_SECONDS = 0.1
_HANDSHAKES_SECONDS = 0.5   # how long it waits for TLS handshakes under way


class App:
    """What handlers work on, shared by all listeners of a daemon."""

    def __init__(self, *, broker: Any, settings: Any, log: Any, sessions: Callable[[], Iterable[Any]],
                 info: Mapping[str, Any], start_time: float, connection_limits: ConnectionLimits, doors: Doors) -> None:
        self.connection_limits = connection_limits
        self.doors = doors
        self.broker = broker
        self.settings = settings
        self.log = log
        self.sessions = sessions            # all V2 connections
        self.info = info                    # hostname, tcp_port, https_port: read with each call
        self.start_time = start_time        # unix seconds
        self.memory = MemoryWatch()
        self.memory.start()
        self.profiling = False
        self.surveys = asyncio.Lock()       # held for statistics that take more than one loop iteration
        self.servers: list[Server] = []
        self.dates = Dates()
        self.targets: dict[bytes, bytes] = {}   # request targets of plain publishes, and their topics
        self.heads: dict[bytes, tuple[bytes, int]] = {}     # heads of plain publishes: topic, length of the body
        self.max_msg_size = settings.now.message_limit
        settings.on_change(self._changed)

    def _changed(self, *_: Any) -> None:
        self.max_msg_size = self.settings.now.message_limit
        self.heads.clear()

    def find_target(self, url: bytes) -> bytes | None:
        """The topic of a plain publish, kept for the next one; None: it is something else."""
        name = plain_target(url)
        if name is not None:
            if len(self.targets) >= _KEPT_TARGETS:
                self.targets.clear()
            self.targets[url] = name
        return name

    def remember(self, head: bytes, plain: tuple[bytes, int]) -> None:
        """Keeps the head of a plain publish, with its topic and the length of its body."""
        if len(head) <= _KEPT_HEAD_BYTES:
            if len(self.heads) >= _KEPT_TARGETS:
                self.heads.clear()
            self.heads[head] = plain

    def date(self) -> str:
        """The Date header."""
        dates = self.dates
        if monotonic() >= dates.until:
            dates.refresh()
        return dates.line

    def log_request(self, request: Request, status: int) -> None:
        """The original's line for an answered request."""
        elapsed = format_duration(time.perf_counter_ns() - request.started)
        self.log.info("%d %s %s (%s) %s", status, request.method.decode("latin-1"), request.url.decode("latin-1"),
                      request.remote, elapsed)


class Server:
    """One listener and its connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop, app: App, name: str) -> None:
        self.loop = loop
        self.app = app
        self.name = name                            # HTTP or HTTPS, for the log
        self.address = ""                           # where it really listens
        self.port = -1                              # -1: a unix socket
        self.now = loop.time
        self.header_timeout = app.settings.now.http_header_timeout / 1e9
        self.connections: set[Connection] = set()
        self.unfinished: set[Connection] = set()    # with a deadline: new, or in the middle of a request
        self.closing = False
        self.certificates: Any = None               # nsqc.net.tls.Certificates; None: no TLS
        self.tls_required = False                   # every request is refused: it should have come over TLS
        self._sock: Any = None
        self._path = ""
        self._listener: Any = None
        self._sweep: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None

    async def listen(self, address: str, inherited: socket.socket | None = None) -> None:
        """Binds, unless a socket is inherited, and accepts; OSError or ValueError says why not."""
        sock = self._sock = inherited or bind(address)
        # The file of an inherited socket stays, for it belongs to who handed it over.
        self._path = "" if inherited else address
        self.address = address_text(sock)
        self.port = port_of(sock)
        prepare(sock)
        try:
            # From now on /info knows the port, and a client may be here before this call returns.
            self.app.servers.append(self)
            if self.certificates is not None:
                self._listener = TlsListener(
                    self.loop, sock, self._make_connection, self.certificates, self.app.connection_limits, self.app.log)
                self._listener.start()
            else:
                self._listener = Door(self.loop, sock, self._make_connection, self.app.log)
                await self._listener.start()
            self.app.doors.add(self._listener)
        except BaseException:
            sock.close()
            self.app.servers.remove(self)
            raise
        self.app.log.info("%s: listening on %s", self.name, self.address)

    async def close(self) -> None:
        """Accepts no more, lets answers in progress out, and closes every connection."""
        if self.closing:
            return
        self.closing = True
        self.app.log.info("%s: closing %s", self.name, self.address)
        if self.port < 0:
            remove(self._sock, self._path)
        self.app.doors.remove(self._listener)
        self._listener.close()
        if self.certificates is not None:
            await self._listener.settle(_HANDSHAKES_SECONDS)
        # Those that were accepted have their connection_made() and what they have sent before it is asked who is idle.
        for _ in range(2):
            await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.end_soon()
        if self.connections:
            self._idle = self.loop.create_future()
            await asyncio.wait([self._idle], timeout=_FAREWELL_SECONDS)
            if any(connection.has_work() for connection in self.connections):
                await asyncio.wait([self._idle], timeout=_CLOSE_SECONDS - _FAREWELL_SECONDS)
            for connection in list(self.connections):
                connection.transport.abort()
        if self._sweep is not None:
            self._sweep.cancel()
        self.app.servers.remove(self)

    def _make_connection(self) -> Connection:
        return Connection(self)

    # ------------------------------------------------------------------ for connections

    def admit(self, connection: Connection, host: str) -> bool:
        """A client has connected. False: it must go."""
        if not self.app.connection_limits.enter(host):
            return False
        self.connections.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        if connection in self.connections:
            self.connections.remove(connection)
            self.app.connection_limits.leave(connection.host)
        self.unfinished.discard(connection)
        if self._idle is not None and not self.connections and not self._idle.done():
            self._idle.set_result(None)

    def watch(self, connection: Connection) -> None:
        """A connection has a deadline: it is new, or has begun a request that is not whole."""
        self.unfinished.add(connection)
        if self._sweep is None:
            self._sweep = self.loop.call_later(self._interval(), self._look)

    def _interval(self) -> float:
        return min(_SWEEP_SECONDS, self.header_timeout / 4)

    def _look(self) -> None:
        """Closes connections whose request did not come in time."""
        now = self.now()
        for connection in list(self.unfinished):
            if connection.blocked:
                # It is we who do not read.
                connection.excuse(now)
            elif connection.due < now:
                self.unfinished.discard(connection)
                connection.expired()
        self._sweep = self.loop.call_later(self._interval(), self._look) if self.unfinished else None


async def listen(loop: asyncio.AbstractEventLoop, address: str, app: App, *, name: str = "HTTP",
                 certificates: Any = None, tls_required: bool = False,
                 inherited: socket.socket | None = None) -> Server:
    """A server that answers on the address: HOST:PORT (port 0: any) or the path of a unix socket.

    An inherited socket, which listens already, is taken in place of the address.

    With certificates (nsqc.net.tls.Certificates) it speaks TLS. With tls_required it refuses every request.
    """
    server = Server(loop, app, name)
    server.certificates = certificates
    server.tls_required = tls_required
    await server.listen(address, inherited)
    return server
