"""Asks auth servers about HTTP clients whose secret is not a token of the access file. Answers count for their TTL."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Sized
from typing import Protocol

from nsqc.access.quotas import Account

MOST_KNOWN = 4096       # answers; a full cache is emptied

Who = tuple[str, str, bool, str]    # address, host or "", whether it uses TLS, common name of its certificate or ""


class Grant(Protocol):
    """As nsqc.tcp.protocols.Grant."""

    @property
    def account(self) -> Account | None: ...

    @property
    def identity(self) -> str: ...

    @property
    def identity_url(self) -> str: ...

    @property
    def rules(self) -> Sized: ...

    @property
    def ttl_s(self) -> int: ...

    def allows(self, topic: str, channel: str) -> bool: ...


class Servers(Protocol):
    """Auth servers: nsqc.peers.auth.Authority."""

    def ask(self, who: Who, secret: bytes, answered: Callable[[Grant | None, bool], None]) -> asyncio.Task[None]: ...


async def asked(servers: Servers, who: Who, secret: bytes) -> tuple[Grant | None, bool]:
    """The answer of auth servers: a grant, or None and whether all of them are down."""
    answers: list[tuple[Grant | None, bool]] = []
    question = servers.ask(who, secret, lambda grant, down: answers.append((grant, down)))
    try:
        await question
    except asyncio.CancelledError:
        question.cancel()
        raise
    return answers[0] if answers else (None, False)


class Answers:
    """Caches auth servers' answers by secret and client: an answer may depend on both."""

    def __init__(self, servers: Servers, loop: asyncio.AbstractEventLoop) -> None:
        self._servers = servers
        self._loop = loop
        self._key = os.urandom(32)
        self._known: dict[tuple[bytes, str, bool, str], tuple[Grant, float]] = {}     # and its end of validity

    def known(self, who: Who, secret: bytes) -> Grant | None:
        """The last answer, if it is positive and still valid."""
        found = self._known.get(self._place(who, secret))
        return found[0] if found is not None and self._loop.time() < found[1] else None

    async def ask(self, who: Who, secret: bytes) -> Grant | None:
        """Asks now; None without a positive answer."""
        grant, _ = await asked(self._servers, who, secret)
        if grant is not None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[self._place(who, secret)] = grant, self._loop.time() + grant.ttl_s
        return grant

    def _place(self, who: Who, secret: bytes) -> tuple[bytes, str, bool, str]:
        return hashlib.blake2b(secret, digest_size=16, key=self._key).digest(), *who[1:]
