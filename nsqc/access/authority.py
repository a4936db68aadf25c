"""Permissions of V2 clients: granted by the access file or, if configured, by auth servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized

from nsqc.access.keeper import CONSUMING, PUBLISHING, Access, Subject
from nsqc.access.quotas import Account
from nsqc.access.servers import Grant, Servers, Who, asked
from nsqc.access.tokens import id_of
from nsqc.access.verifier import TooManyWrong
from nsqc.log import Log

UNLIMITED_S = 2**31     # the file decides when grants end


class LocalGrant:
    """A client's permissions; implements nsqc.tcp.protocols.Grant."""

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


class AccessAuthority:
    """nsqc.tcp.protocols.Authority backed by an access file. servers: asked about secrets that are not tokens."""

    def __init__(self, access: Access, loop: asyncio.AbstractEventLoop, log: Log, servers: Servers | None) -> None:
        self._access = access
        self._loop = loop
        self._log = log
        self._servers = servers
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, who: Who, secret: bytes, answered: Callable[[Grant | None, bool], None]) -> asyncio.Task[None]:
        """Calls answered(grant, False) later, or answered(None, down); not if the returned task is cancelled."""
        task = self._loop.create_task(self._ask(who, secret, answered))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def presented(self, who: Who) -> LocalGrant | None:
        """The grant of a client that sent no AUTH: its certificate's, or the anonymous one."""
        subject = self._access.known(None, who)
        return LocalGrant(subject) if subject is not None and subject.users else None

    def renewed(self, grant: LocalGrant) -> LocalGrant | None:
        """A grant updated to the current rules; None: no permission remains."""
        subject = self._access.renewed(grant.subject)
        return LocalGrant(subject) if subject.users or subject.servers is not None else None

    async def close(self) -> None:
        """Cancels all pending requests."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, who: Who, secret: bytes, answered: Callable[[Grant | None, bool], None]) -> None:
        address = who[0]
        is_token = id_of(secret) is not None
        subject = None
        try:
            if is_token or self._servers is None:
                subject = self._access.known(secret, who)
                if subject is None:
                    subject = await self._access.check(secret, who)
        except TooManyWrong:
            self._log.warn("PROTOCOL(V2): [%s] AUTH failed too many wrong tokens", address)
        except Exception as error:
            # A bug, which must not leave the client waiting. The error's text may contain the secret.
            self._log.error("PROTOCOL(V2): [%s] AUTH failed %s", address, type(error).__name__)
        if subject is None and self._servers is not None and not is_token:
            grant, down = await asked(self._servers, who, secret)
            subject = self._access.known(None, who) or Subject(())
            answered(None if grant is None else LocalGrant(subject._replace(servers=grant)), down)
            return
        answered(None if subject is None else LocalGrant(subject), False)
