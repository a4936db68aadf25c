"""A server's access file and audit log: built, watched, reloaded, closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from nsqc.access.audit import OFF, Audit
from nsqc.access.authority import AccessAuthority
from nsqc.access.keeper import Access
from nsqc.access.rules import AccessError
from nsqc.httpd.audited import Recorder
from nsqc.httpd.permits import Permits
from nsqc.log import Log

if TYPE_CHECKING:
    from nsqc.access.servers import Servers
    from nsqc.httpd.server import Server

VERIFIED = "require-verify"     # --tls-client-auth-policy under which certificates prove an identity
AT_ONCE = 256                   # connections updated to new rules, per loop iteration


class GuardingError(Exception):
    """The server cannot start; the text is one line for the operator."""


class GuardingOptions(Protocol):
    """The options of both."""

    @property
    def access_file(self) -> str: ...

    @property
    def audit_file(self) -> str: ...

    @property
    def audit_level(self) -> str: ...


class Ruled(Protocol):
    """A connection to which new rules are applied."""

    def rules_changed(self) -> None: ...


class Guarding:
    """Both, or one of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, options: GuardingOptions, log: Log,
                 servers: Servers | None = None) -> None:
        """Raises GuardingError."""
        self._loop = loop
        self._workers = workers
        self._connections: Callable[[], Iterable[Ruled]] = tuple
        self._endpoints: Sequence[Server] = ()
        self.access: Access | None = None
        self.authority: AccessAuthority | None = None
        self.permits: Permits | None = None
        try:
            if options.access_file:
                policy = getattr(options, "tls_client_auth_policy", "")
                self.access = Access(options.access_file, loop, workers, log, policy == VERIFIED, servers)
                self.authority = AccessAuthority(self.access, loop, log, servers)
                self.permits = Permits(self.access)
            is_off = options.audit_level == OFF
            self.audit = None if is_off else Audit(options.audit_file, options.audit_level, log)
            self.recorder = None if self.audit is None else Recorder(self.audit)
        except AccessError as error:
            raise GuardingError(str(error)) from None
        except OSError as error:
            raise GuardingError(f"failed to open --audit-file {options.audit_file} - {error.strerror}") from None

    def watch(self, connections: Callable[[], Iterable[Ruled]], endpoints: Sequence[Server]) -> None:
        """Starts watching the file; new rules are applied to these connections and to those over HTTP."""
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
        if self.authority is not None:
            await self.authority.close()
        if self.audit is not None:
            await self._loop.run_in_executor(self._workers, self.audit.close)

    def _apply(self) -> None:
        """Applies the new rules to every connection."""
        for endpoint in self._endpoints:
            for connection in endpoint.connections:
                connection.forget_heads()   # before any other publish
        self._continue(iter([*self._connections(), *(connection for endpoint in self._endpoints
                                                     for connection in endpoint.connections)]))

    def _continue(self, left: Iterator[Ruled]) -> None:
        some = list(islice(left, AT_ONCE))
        for connection in some:
            connection.rules_changed()
        if len(some) == AT_ONCE:
            self._loop.call_soon(self._continue, left)
