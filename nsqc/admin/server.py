"""The admin server as a whole: built, started, running, stopped."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import ssl
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from nsqc import version_line
from nsqc.admin.api import AdminSite, Page, router
from nsqc.admin.changes import Notifier
from nsqc.admin.fleet import Fleet
from nsqc.admin.poller import Poller
from nsqc.admin.rights import People
from nsqc.admin.steward import Steward
from nsqc.admin.upstream import HttpNodes, Trust
from nsqc.admin.view import View
from nsqc.guarding import Guarding, GuardingError, warn_of_clear_tokens
from nsqc.httpd.gate import Gate
from nsqc.httpd.server import Server
from nsqc.log import Log
from nsqc.loop.slow import SlowLoop
from nsqc.net.listener import ConnectionLimits, Listener, Listeners
from nsqc.net.tls import CertificateFile, Certificates, TlsError, concerns, read_dates, warn_daily
from nsqc.options.declared import OptionError, flag_name
from nsqc.options.file import read_rules
from nsqc.options.reload import offered
from nsqc.options.servers import AdminOptions
from nsqc.process import machine, running
from nsqc.process.machine import EnvironmentVariableError
from nsqc.process.running import ADMIN_NAMES, Hangup, InheritError, ServiceManager, inherited
from nsqc.wire.nodehosts import NodeHosts

WORKERS = 2


class StartError(Exception):
    """The server cannot start; the text is one line for the operator."""


def run(options: AdminOptions, log: Log) -> int:
    """Runs the server until SIGTERM or SIGINT. Returns the exit code."""
    return running.run("server", log, lambda loop, slow: serve(loop, options, log, slow))


async def serve(loop: asyncio.AbstractEventLoop, options: AdminOptions, log: Log, slow: SlowLoop) -> int:
    """Startup, main loop, shutdown, in that order."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    hangup = Hangup(loop)
    try:
        server = AdminServer(loop, options, log, slow)
        await server.start()
    except StartError as error:
        log.fatal("failed to instantiate nsqadmin - %s", error)
        return 1
    # Without these files there is nothing to read again.
    hangup.begin(stop.set, server.reload if options.access_file or options.audit_file or options.tls_cert else None)
    await stop.wait()
    hangup.end()
    await server.stop()
    return 0


class AdminServer:
    """One running admin server."""

    http: Server

    def __init__(self, loop: asyncio.AbstractEventLoop, options: AdminOptions, log: Log, slow: SlowLoop) -> None:
        """Binds the address. Raises StartError."""
        self.loop, self.options, self.log, self.slow = loop, options, log, slow
        try:
            self.manager = ServiceManager(log)
            sockets = inherited(known=ADMIN_NAMES)
        except (EnvironmentVariableError, InheritError) as error:
            raise StartError(str(error)) from None
        log.info("%s", version_line("nsqadmin"))
        machine.raise_limit()
        self.limits = ConnectionLimits(log, options.max_connections)
        self.listeners = Listeners(loop, log)
        self.threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="nsqc-worker")
        self.guarding = self._make_guarding()
        lookupds, nsqds = map(bare, (options.lookupd_http_address, options.nsqd_http_address))
        trust = Trust((*lookupds, *nsqds), NodeHosts(options.node_addresses))
        https = {*lookupds, *nsqds} - {*options.lookupd_http_address, *options.nsqd_http_address}
        self.nodes = HttpNodes(loop, log, connect_s=options.http_client_connect_timeout / 1e9,
                               request_s=options.http_client_request_timeout / 1e9, tls=client_context(options),
                               secret=secret_of(options), trust=trust, https=https)
        self.fleet = Fleet(self.nodes.ask, log, lookupds, nsqds, trust)
        self.page = page_of(options)
        try:
            self.steward = Steward(self.fleet, log, options.rules, options.read_only)
        except OptionError as error:
            raise StartError(f"--rules: {error}") from None
        endpoint = options.notification_http_endpoint
        try:
            self.notifier = (Notifier(loop, endpoint, options.http_client_connect_timeout / 1e9, log)
                             if endpoint else None)
        except ValueError as error:
            raise StartError(f"--notification-http-endpoint: {error}") from None
        try:
            self.certificates = Certificates(settings) if (settings := offered(options)) else None
            name = "HTTP" if self.certificates is None else "HTTPS"
            self.listener = Listener(name, options.http_address, log, sockets.get("http"))
        except TlsError as error:
            raise StartError(str(error)) from None
        except (OSError, ValueError) as error:
            raise StartError(f"listen ({options.http_address}) failed - {error}") from None

    def reload(self) -> None:
        """Reads the access file and the certificates again, and reopens the audit log."""
        self.guarding.reload()
        if self.certificates is not None:
            self.certificates.reload()

    def _make_guarding(self) -> Guarding:
        try:
            return Guarding(self.loop, self.threads, self.log, self.options.access_file, self.options.audit_file,
                            self.options.audit_level)
        except GuardingError as error:
            raise StartError(str(error)) from None

    async def start(self) -> None:
        """Lets clients connect. Raises StartError."""
        guarding = self.guarding
        gate = Gate(self.options, guarding.permits, guarding.recorder)
        options, fleet = self.options, self.fleet
        prometheus = None
        if options.prometheus_url:
            from nsqc.admin.history import Prometheus  # here: most servers have none

            try:
                prometheus = Prometheus(self.loop, options.prometheus_url, self.log)
            except ValueError as error:
                raise StartError(f"--prometheus-url: {error}") from None
        self.poller = Poller(self.loop, fleet, self.log, options.poll_interval / 1e9, self.steward)
        people = People(options.acl_http_header, options.admin_user, options.read_only,
                        bool(options.access_file) or options.http_extended_api == "all")  # the file was asked already
        self.view = View(fleet, self.poller, people, self.log, mode="lookupd" if fleet.has_lookupds else "nsqd",
                         base=options.prefix + "/", notify=lambda *about, **more: site.notify(*about, **more),
                         prometheus=prometheus)
        site = AdminSite(loop=self.loop, options=options, fleet=fleet, page=self.page, people=people,
                         notifier=self.notifier, log=self.log, threads=self.threads,
                         resolve=router(self.view, options.prefix).resolve, listeners=self.listeners, slow=self.slow,
                         gate=gate)
        self.http = Server(self.loop, site, self.listener, limits=self.limits, listeners=self.listeners,
                           certificates=self.certificates)
        try:
            await self.http.start()
        except OSError as error:
            raise StartError(f"listen failed - {error}") from None
        guarding.watch(tuple, [self.http])
        self.poller.start()
        if self.certificates is not None:
            self.certificates.watch(self.loop, self.threads, self.log)
        elif options.access_file:
            warn_of_clear_tokens(self.log, self.http.name, self.http.address)
        dates = read_dates(certificates_of(options))    # the context has them as they are now
        self._stop_warning = warn_daily(self.loop, self.log, lambda: dates)
        gc.collect()
        gc.freeze()
        gc.enable()
        self.manager.ready(f"Listening on {self.http.name} {self.http.address}")
        self.manager.watch(self.loop)
        self.slow.set_limit(self.options.slow_loop)

    async def stop(self) -> None:
        """Closes all connections after the answers that are due."""
        self.slow.close()
        self.manager.stopping("Closing connections")
        await self.http.close()
        self.listeners.stop()
        self.poller.stop()
        self._stop_warning()
        if self.certificates is not None:
            self.certificates.close()
        if self.notifier is not None:
            await self.notifier.close()
        self.nodes.close()
        await self.guarding.close()
        self.threads.shutdown()
        self.manager.close()


def bare(addresses: Iterable[str]) -> tuple[str, ...]:
    """HOST:PORT of addresses that may begin with https://."""
    return tuple(address.removeprefix("https://").rstrip("/") for address in addresses)


def unreadable(options: AdminOptions) -> Iterator[StartError]:
    """Files that the options name and that a start could not read."""
    reads: tuple[Callable[[AdminOptions], object], ...] = (client_context, secret_of, page_of, rules_of)
    for read in reads:
        try:
            read(options)
        except StartError as error:
            yield error


def rules_of(options: AdminOptions) -> object:
    """The tables of --rules. Raises StartError."""
    try:
        return read_rules(options.rules) if options.rules else None
    except OptionError as error:
        raise StartError(f"--rules: {error}") from None


def page_of(options: AdminOptions) -> Page:
    """The page. Raises StartError."""
    try:
        return Page(options.dev_static_dir, options.prefix)
    except OSError as error:
        raise StartError(f"failed to read the page - {error}") from None


def certificates_of(options: AdminOptions) -> list[CertificateFile]:
    """The files with certificates that the options name."""
    return [CertificateFile("--http-client-tls-cert", options.http_client_tls_cert),
            CertificateFile("--http-client-tls-root-ca-file", options.http_client_tls_root_ca_file, authorities=True)]


def expiring(options: AdminOptions) -> list[str]:
    """The texts about those that have expired, or soon will."""
    return concerns(read_dates(certificates_of(options)))


def client_context(options: AdminOptions) -> ssl.SSLContext | None:
    """For nodes that want HTTPS; None: the system's authorities do. Raises StartError."""
    if not (options.http_client_tls_insecure_skip_verify or options.http_client_tls_root_ca_file
            or options.http_client_tls_cert):
        return None
    for name in ("http_client_tls_root_ca_file", "http_client_tls_cert", "http_client_tls_key"):
        path = str(options.value(name))
        if path and not os.access(path, os.R_OK):
            raise StartError(f"{flag_name(name)}: failed to read {path}")
    try:
        context = ssl.create_default_context(cafile=options.http_client_tls_root_ca_file or None)
        if options.http_client_tls_cert:
            # Without a password from us OpenSSL would ask at the terminal.
            context.load_cert_chain(options.http_client_tls_cert, options.http_client_tls_key, password=lambda: b"")
    except (OSError, ssl.SSLError) as error:
        raise StartError(f"failed to build TLS config - {error}") from None
    if options.http_client_tls_insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def secret_of(options: AdminOptions) -> str:
    """The token for nodes. Raises StartError."""
    text = options.node_auth_secret
    if not text.startswith("@"):
        return text
    try:
        with open(text[1:], encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StartError(f"--node-auth-secret: failed to read {text[1:]} - {reason}") from None
