"""A server's access file and audit log: built, watched, reloaded, closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import islice
from typing import TYPE_CHECKING

from nsqc.access.audit import OFF, Audit
from nsqc.access.keeper import Access
from nsqc.access.rules import AccessError
from nsqc.httpd.permits import Permits, Recorder
from nsqc.log import Log
from nsqc.net.address import is_loopback

if TYPE_CHECKING:
    from nsqc.httpd.server import Server
    from nsqc.peers.auth import AuthServers

AT_ONCE = 256       # connections updated to new rules, per loop iteration


def warn_of_clear_tokens(log: Log, name: str, address: str, remedy: str = "--tls-cert and --tls-key") -> None:
    """Warns about a listener that takes tokens without TLS from other machines. address: HOST:PORT, or a path."""
    if "/" not in address and not is_loopback(address):
        log.warn("%s: %s takes tokens in clear text, so the network can read them. Use %s, or listen on 127.0.0.1",
                 name, address, remedy)


class GuardingError(Exception):
    """The server cannot start; the text is one line for the operator."""


class Guarding:
    """Both, or one of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, log: Log, access_file: str, audit_file: str,
                 audit_level: str, *, trusts_certificates: bool = False, servers: AuthServers | None = None) -> None:
        """trusts_certificates, servers: as of Access. Raises GuardingError."""
        self._loop = loop
        self._workers = workers
        self._connections: Callable[[], Iterable[Callable[[], None]]] = tuple
        self._endpoints: Sequence[Server] = ()
        self.access: Access | None = None
        self.permits: Permits | None = None
        try:
            if access_file:
                self.access = Access(access_file, loop, workers, log, trusts_certificates, servers)
                self.permits = Permits(self.access)
            self.audit = None if audit_level == OFF else Audit(audit_file, audit_level, log)
            self.recorder = None if self.audit is None else Recorder(self.audit)
        except AccessError as error:
            raise GuardingError(str(error)) from None
        except OSError as error:
            raise GuardingError(f"failed to open --audit-file {audit_file} - {error.strerror}") from None

    def watch(self, connections: Callable[[], Iterable[Callable[[], None]]], endpoints: Sequence[Server]) -> None:
        """Starts watching the file; new rules are applied to connections over HTTP, and to others: connections()
        returns the functions that do so."""
        self._connections = connections
        self._endpoints = endpoints
        if self.access is not None:
            self.access.on_change(self._apply)
            self.access.watch()

    def reload(self) -> None:
        """Reads the access file again, and reopens the audit log."""
        if self.access is not None:
            self.access.reload()
        if self.audit is not None:
            self.audit.reopen()

    async def close(self) -> None:
        """Cancels pending work, and flushes the audit log."""
        if self.access is not None:
            self.access.close()
        if self.audit is not None:
            await self._loop.run_in_executor(self._workers, self.audit.close)

    def _apply(self) -> None:
        """Applies the new rules to every connection."""
        for endpoint in self._endpoints:
            for connection in endpoint.connections:
                connection.forget_heads()   # before any other publish
        self._continue(iter([*self._connections(), *(connection.rules_changed for endpoint in self._endpoints
                                                     for connection in endpoint.connections)]))

    def _continue(self, left: Iterator[Callable[[], None]]) -> None:
        some = list(islice(left, AT_ONCE))
        for apply in some:
            apply()
        if len(some) == AT_ONCE:
            self._loop.call_soon(self._continue, left)
