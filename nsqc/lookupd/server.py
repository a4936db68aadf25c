"""The lookup server as a whole: construction, start, main loop, shutdown."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from nsqc import version_line
from nsqc.httpd.gate import Gate
from nsqc.httpd.server import Server
from nsqc.log import Log
from nsqc.lookupd.connection import Connection, Hub
from nsqc.lookupd.registry import Registry
from nsqc.lookupd.site import LookupSite
from nsqc.lookupd.views import PATHS, resolve
from nsqc.loop.slow import REGISTRATIONS_S, Share, SlowLoop
from nsqc.metrics.durations import LoopLag
from nsqc.net.address import is_unix
from nsqc.net.listener import Acceptor, ConnectionLimits, Listener, Listeners
from nsqc.net.tls import Certificates, TlsAcceptor, TlsError
from nsqc.options.reload import offered
from nsqc.options.servers import LookupdOptions
from nsqc.process import machine, running
from nsqc.process.machine import EnvironmentVariableError
from nsqc.process.running import LOOKUPD_NAMES, Hangup, InheritError, ServiceManager, inherited

if TYPE_CHECKING:
    from nsqc.guarding import Guarding

# Python's cycle collector examines only young objects, never all registrations: a million of them would take 100 ms.
# They are freed by reference counts.
COLLECT = (2_000, 5, 1_000_000)
DESCRIPTORS_S = 1.0     # how often the limit of open files is read again


class StartError(Exception):
    """The server cannot start; the text is one line for the operator."""


def run(options: LookupdOptions, log: Log) -> int:
    """Runs the server until SIGTERM, SIGINT or SIGHUP. Returns the exit code."""
    return running.run("server", log, lambda loop, slow: serve(loop, options, log, slow))


async def serve(loop: asyncio.AbstractEventLoop, options: LookupdOptions, log: Log, slow: SlowLoop) -> int:
    """Startup, main loop, shutdown, in that order."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    hangup = Hangup(loop)
    try:
        server = LookupServer(loop, options, log, slow)
        await server.start()
    except StartError as error:
        log.fatal("failed to instantiate nsqlookupd - %s", error)
        return 1
    hangup.begin(stop.set, server.reload if server.can_reload else None)
    await stop.wait()
    hangup.end()
    await server.stop()
    return 0


class LookupServer:
    """One running nsqlookupd."""

    http: Server

    def __init__(self, loop: asyncio.AbstractEventLoop, options: LookupdOptions, log: Log, slow: SlowLoop) -> None:
        """Binds both addresses. Raises StartError."""
        self.loop = loop
        self.options = options
        self.log = log
        try:
            self.manager = ServiceManager(log)
            self.inherited = inherited(known=LOOKUPD_NAMES)
        except (EnvironmentVariableError, InheritError) as error:
            raise StartError(str(error)) from None
        log.info("%s", version_line("nsqlookupd"))
        self.open_files = machine.raise_limit()
        self.slow = slow
        self.limits = ConnectionLimits(log, options.max_connections, options.max_connections_per_address)
        self.listeners = Listeners(loop, log)
        self.share = Share(REGISTRATIONS_S, "registrations")
        self.registry = Registry(options.inactive_producer_timeout, options.tombstone_lifetime,
                                 options.max_registrations)
        self.hub = Hub(loop, self.registry, self.share, self.limits, options, log)
        self.threads = ThreadPoolExecutor(1, thread_name_prefix="nsqc-worker")  # started on first use
        self.guarding = self._make_guarding()
        try:
            self.certificates = Certificates(settings) if (settings := offered(options)) else None
        except TlsError as error:
            raise StartError(str(error)) from None
        self.tcp = self._bind("tcp", "TCP", options.tcp_address)
        self.http_listener = self._bind("http", "HTTP" if self.certificates is None else "HTTPS", options.http_address)
        self._timer: asyncio.TimerHandle | None = None

    def _make_guarding(self) -> Guarding | None:
        if not self.options.access_file and not self.options.audit_file:
            return None
        from nsqc.guarding import Guarding, GuardingError  # here: most servers have neither

        try:
            guarding = Guarding(self.loop, self.threads, self.log, self.options.access_file, self.options.audit_file,
                                self.options.audit_level)
        except GuardingError as error:
            raise StartError(str(error)) from None
        self.hub.access, self.hub.audit = guarding.access, guarding.audit
        return guarding

    def _bind(self, key: str, name: str, address: str) -> Listener:
        given = self.inherited.get(key)
        try:
            if given is None and is_unix(address):
                raise ValueError("missing port in address")
            return Listener(name, address, self.log, given)
        except (OSError, ValueError) as error:
            raise StartError(f"listen ({address}) failed - {error}") from None

    async def start(self) -> None:
        """Accepts nodes and clients. Raises StartError."""
        self.lag = LoopLag(self.loop)
        self.hub.introduce(socket.gethostname(), max(0, self.tcp.port), max(0, self.http_listener.port))
        site = LookupSite(hub=self.hub, log=self.log, header_timeout=self.options.http_header_timeout,
                          threads=self.threads, resolve=resolve, listeners=self.listeners, slow=self.slow, routes=PATHS,
                          lags=self.lag.lags, gate=self._make_gate())
        self.http = Server(self.loop, site, self.http_listener, limits=self.limits, listeners=self.listeners,
                           certificates=self.certificates)
        try:
            await self.tcp.start(self._tcp_acceptor(), self.listeners)
            await self.http.start()
        except OSError as error:
            raise StartError(f"listen failed - {error}") from None
        if self.guarding is not None:
            self.guarding.watch(lambda: [client.rules_changed for client in self.hub.connections], [self.http])
            if self.certificates is None and self.options.access_file:
                from nsqc.guarding import warn_of_clear_tokens  # here: imported with the access file

                warn_of_clear_tokens(self.log, self.http.name, self.http.address)
        if self.certificates is not None:
            self.certificates.watch(self.loop, self.threads, self.log)
        self._reserve_descriptors()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        gc.enable()
        self.manager.ready(f"Listening on TCP {self.tcp.address}, {self.http.name} {self.http.address}")
        self.manager.watch(self.loop)
        self.slow.set_limit(self.options.slow_loop)

    def _tcp_acceptor(self) -> Acceptor | TlsAcceptor:
        if self.certificates is None:
            return Acceptor(self.loop, self.tcp.sock, lambda: Connection(self.hub), self.log)
        return TlsAcceptor(self.loop, self.tcp.sock, lambda: Connection(self.hub), self.certificates, self.limits,
                           self.log, self.tcp.name)

    @property
    def can_reload(self) -> bool:
        """Whether there is a file to read again."""
        return self.guarding is not None or self.certificates is not None

    def reload(self) -> None:
        """Reads the access file and the certificates again, and reopens the audit log."""
        if self.guarding is not None:
            self.guarding.reload()
        if self.certificates is not None:
            self.certificates.reload()

    def _make_gate(self) -> Gate:
        guarding = self.guarding
        return Gate(self.options) if guarding is None else Gate(self.options, guarding.permits, guarding.recorder)

    def _reserve_descriptors(self) -> None:
        """Makes clients wait before the descriptors run out, also when the limit changes later."""
        now = machine.limit()
        if self._timer is None or now != self.open_files:
            self.open_files = now
            self.limits.keep_within(machine.for_clients(now, self.limits.connections), self.listeners)
        self._timer = self.loop.call_later(DESCRIPTORS_S, self._reserve_descriptors)

    async def stop(self) -> None:
        """Closes all connections after the answers that are due."""
        self.slow.close()
        self.manager.stopping("Closing connections")
        self.tcp.close()
        await self.hub.close()
        await self.http.close()
        self.listeners.stop()
        self.lag.close()
        if self._timer is not None:
            self._timer.cancel()
        if self.certificates is not None:
            self.certificates.close()
        if self.guarding is not None:
            await self.guarding.close()
        self.threads.shutdown()
        self.manager.close()
