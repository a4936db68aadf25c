"""Permissions of V2 clients: granted by the access file, by auth servers, or by both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING

from nsqc.access.keeper import Access, Account, Subject, TooManyWrong, Who
from nsqc.access.needs import CONSUMING, PUBLISHING
from nsqc.access.rules import id_of
from nsqc.log import Log
from nsqc.peers.http import spawn

if TYPE_CHECKING:
    from nsqc.peers.auth import AuthServers

UNLIMITED_S = 2**31     # the file decides when grants end


class Grant:
    """A client's permissions."""

    __slots__ = ("account", "rules", "subject")

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.account: Account | None = subject.account
        servers = subject.servers
        self.rules: Sized = range(len(subject.scopes) + (len(servers.rules) if servers is not None else 0))

    @property
    def identity(self) -> str:
        """A name, for statistics."""
        return self.subject.name

    @property
    def identity_url(self) -> str:
        """A URL, set only by auth servers."""
        return "" if self.subject.servers is None else self.subject.servers.identity_url

    @property
    def ttl_s(self) -> int:
        """Seconds for which the grant is valid."""
        return UNLIMITED_S if self.subject.servers is None else self.subject.servers.ttl_s

    def allows(self, topic: str, channel: str) -> bool:
        """Whether it permits consuming the channel, or publishing if channel is empty."""
        return bool(self.subject.reason(CONSUMING if channel else PUBLISHING, topic, channel))


class Authority:
    """Grants permissions by an access file (access), by auth servers (servers), or by both: then the servers decide on
    secrets that are not tokens of the file."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Log, access: Access | None, servers: AuthServers | None
                 ) -> None:
        self._loop = loop
        self._log = log
        self._access = access
        self._servers = servers

    def ask(self, who: Who, secret: bytes, answered: Callable[[Grant | None, bool], None]) -> asyncio.Task[None]:
        """Calls answered(grant, False) later, or answered(None, whether all servers are down); not if the returned task
        is cancelled."""
        return spawn(self._loop, self._ask(who, secret, answered), self._log)

    def presented(self, who: Who) -> Grant | None:
        """The grant of a client that sent no AUTH: its certificate's, or the anonymous one."""
        subject = self._unproven(who)
        return Grant(subject) if subject.users else None

    def renewed(self, grant: Grant) -> Grant | None:
        """A grant updated to the current rules; None: no permission remains."""
        if self._access is None:
            return grant
        subject = self._access.renewed(grant.subject)
        return Grant(subject) if subject.users or subject.servers is not None else None

    def _unproven(self, who: Who) -> Subject:
        """A client without a token."""
        return Subject(()) if self._access is None else self._access.known(None, who) or Subject(())

    async def _ask(self, who: Who, secret: bytes, answered: Callable[[Grant | None, bool], None]) -> None:
        subject, down = None, False
        try:
            if self._servers is not None and (self._access is None or id_of(secret) is None):
                granted, down = await self._servers.ask(who, secret)
                subject = None if granted is None else self._unproven(who)._replace(servers=granted)
            elif self._access is not None:
                subject = self._access.known(secret, who) or await self._access.check(secret, who)
        except TooManyWrong:
            self._log.warn("PROTOCOL(V2): [%s] AUTH failed too many wrong tokens", who[0])
        except Exception as error:
            # A bug, which must not leave the client waiting. The error's text may contain the secret.
            self._log.error("PROTOCOL(V2): [%s] AUTH failed %s", who[0], type(error).__name__)
        answered(None if subject is None else Grant(subject), down)
