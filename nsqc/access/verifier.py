"""Checks tokens: those seen before by a cache, others by a thread, one at a time, and slowly for an address that sends
wrong ones. So a flood of wrong tokens takes at most that thread, and delays no client that is known.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
from concurrent.futures import ThreadPoolExecutor

from nsqc.access.rules import Rules, User
from nsqc.access.tokens import Hash, id_of

MOST_KNOWN = 65536      # tokens in each cache; a full one starts over
MOST_ADDRESSES = 16384
MOST_WAITING = 16       # clients of one address whose tokens wait to be checked
FIRST_DELAY_S = 0.05    # after a wrong token; it doubles with each
LONGEST_DELAY_S = 2.0
FORGIVEN_S = 60.0       # without a wrong token, an address counts as new


class TooManyWrong(Exception):
    """Too many tokens of this address wait to be checked."""


class _Address:
    """What an address has sent lately."""

    __slots__ = ("failures", "last", "lock", "until", "waiting")

    def __init__(self) -> None:
        self.failures = 0
        self.last = 0.0         # loop time of the last wrong token
        self.until = 0.0        # loop time from which the next one may be checked
        self.waiting = 0
        self.lock = asyncio.Lock()


class Verifier:
    """Which user a token belongs to."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.checks = 0         # hashes computed so far
        self._loop = loop
        # Digests stand for tokens, so none stays in memory. The key makes them useless elsewhere.
        self._key = os.urandom(32)
        self._known: dict[bytes, Hash] = {}     # tokens that have matched
        self._wrong: dict[bytes, Hash] = {}     # and that have not
        self._addresses: dict[str, _Address] = {}
        self._thread: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Ends the thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def known(self, token: bytes, rules: Rules) -> tuple[Hash, User] | None:
        """The hash and the user of a token that has been checked; None: it has to be checked, or is wrong."""
        proven = self._known.get(self._digest(token))
        return None if proven is None else current(proven, rules)

    async def check(self, token: bytes, address: str, rules: Rules) -> tuple[Hash, User] | None:
        """The same for any token; None: it is wrong. Waits if its address has sent wrong ones. Raises TooManyWrong."""
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
                # What waited with it may have been the same token.
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
        """Drops those that nobody waits for, the forgiven ones first."""
        now = self._loop.time()
        idle = [name for name, at in self._addresses.items() if not at.waiting]
        forgiven = [name for name in idle if now - self._addresses[name].last >= FORGIVEN_S]
        for name in forgiven or idle:
            del self._addresses[name]


def current(proven: Hash, rules: Rules) -> tuple[Hash, User] | None:
    """The user that a proven hash belongs to now; None: it is no longer in the file."""
    found = rules.tokens.get(proven.id)
    return found if found is not None and found[0] == proven else None


def _network(address: str) -> str:
    """What wrong tokens are counted under: an IPv4 address, or the /64 network that IPv6 gives to one customer."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
