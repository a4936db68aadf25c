"""Checks tokens: known ones from a cache, others on a thread, one at a time and slowly for an address that sends wrong
ones. So a flood of wrong tokens occupies at most that thread, and delays no known client.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
from concurrent.futures import ThreadPoolExecutor

from nsqc.access.rules import Rules, User
from nsqc.access.tokens import Hash, id_of

MOST_KNOWN = 65536      # tokens in each cache; a full one is emptied
MOST_ADDRESSES = 16384
MOST_WAITING = 16       # clients of one address whose tokens wait for a check
FIRST_DELAY_S = 0.05    # after a wrong token; doubles with each
LONGEST_DELAY_S = 2.0
FORGIVEN_S = 60.0       # an address without a wrong token for this long counts as new


class TooManyWrong(Exception):
    """Too many tokens of this address wait for a check."""


class _Address:
    """Recent history of an address."""

    __slots__ = ("failures", "last", "lock", "until", "waiting")

    def __init__(self) -> None:
        self.failures = 0
        self.last = 0.0         # loop time of the last wrong token
        self.until = 0.0        # loop time from which the next token may be checked
        self.waiting = 0
        self.lock = asyncio.Lock()


class Verifier:
    """Finds the user of a token."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.checks = 0         # hashes computed so far
        self._loop = loop
        # Digests stand for tokens, so no token stays in memory. The key makes them useless elsewhere.
        self._key = os.urandom(32)
        self._known: dict[bytes, Hash] = {}     # tokens that matched
        self._wrong: dict[bytes, Hash] = {}     # tokens that did not
        self._addresses: dict[str, _Address] = {}
        self._thread: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Stops the thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def known(self, token: bytes, rules: Rules) -> tuple[Hash, User] | None:
        """The hash and user of a checked token; None: not checked yet, or wrong."""
        proven = self._known.get(self._digest(token))
        return None if proven is None else current(proven, rules)

    async def check(self, token: bytes, address: str, rules: Rules) -> tuple[Hash, User] | None:
        """The same for any token; None: wrong. Waits if its address has sent wrong ones. Raises TooManyWrong."""
        name = _network(address)
        at = self._addresses.get(name)
        if at is None:
            if len(self._addresses) >= MOST_ADDRESSES:
                self._forget_addresses()
            at = self._addresses[name] = _Address()
        if at.waiting >= MOST_WAITING:
            raise TooManyWrong
        at.waiting += 1
        try:
            async with at.lock:
                # A check that ran meanwhile may have been of the same token.
                if (found := self.known(token, rules)) is not None:
                    return found
                if (rest := at.until - self._loop.time()) > 0:
                    await asyncio.sleep(rest)
                found = await self._compare(token, rules)
                if found is None:
                    self._failed(at)
                return found
        finally:
            at.waiting -= 1

    async def _compare(self, token: bytes, rules: Rules) -> tuple[Hash, User] | None:
        found = rules.tokens.get(id_of(token) or "")
        if found is None:
            return None
        digest = self._digest(token)
        if self._wrong.get(digest) == found[0]:
            return None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="nsqc-tokens")
        self.checks += 1
        matches = await self._loop.run_in_executor(self._thread, found[0].matches, token)
        cache = self._known if matches else self._wrong
        if len(cache) >= MOST_KNOWN:
            cache.clear()
        cache[digest] = found[0]
        return found if matches else None

    def _digest(self, token: bytes) -> bytes:
        return hashlib.blake2b(token, digest_size=16, key=self._key).digest()

    def _failed(self, at: _Address) -> None:
        now = self._loop.time()
        at.failures = at.failures + 1 if now - at.last < FORGIVEN_S else 1
        at.last = now
        at.until = now + min(FIRST_DELAY_S * 2.0 ** min(at.failures - 1, 16), LONGEST_DELAY_S)

    def _forget_addresses(self) -> None:
        """Drops idle addresses, forgiven ones first."""
        now = self._loop.time()
        idle = [name for name, at in self._addresses.items() if not at.waiting]
        forgiven = [name for name in idle if now - self._addresses[name].last >= FORGIVEN_S]
        for name in forgiven or idle:
            del self._addresses[name]


def current(proven: Hash, rules: Rules) -> tuple[Hash, User] | None:
    """The current user of a proven hash; None: no longer in the file."""
    found = rules.tokens.get(proven.id)
    return found if found is not None and found[0] == proven else None


def _network(address: str) -> str:
    """Key for counting wrong tokens: an IPv4 address, or a /64 network, since IPv6 gives one to each customer."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
