"""Asks auth servers about HTTP clients whose secret is not a token of the access file. Answers count for their TTL."""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsqc.peers.auth import AuthServers
    from nsqc.peers.grants import Grant

MOST_KNOWN = 4096       # answers; a full cache is emptied

Who = tuple[str, str, bool, str]    # address, host or "", whether it uses TLS, common name of its certificate or ""


class Answers:
    """Caches auth servers' answers by secret and client: an answer may depend on both."""

    def __init__(self, servers: AuthServers, loop: asyncio.AbstractEventLoop) -> None:
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
        grant, _ = await self._servers.ask(who, secret)
        if grant is not None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[self._place(who, secret)] = grant, self._loop.time() + grant.ttl_s
        return grant

    def _place(self, who: Who, secret: bytes) -> tuple[bytes, str, bool, str]:
        return hashlib.blake2b(secret, digest_size=16, key=self._key).digest(), *who[1:]
