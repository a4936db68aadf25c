"""Chooses the nsqd to publish to, the number of retries, and the pauses between them: the policy of both Producers and
of Spark's sink."""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Iterable
from typing import NamedTuple

from nsqc.client.address import checked_addresses
from nsqc.client.backoff import Backoff
from nsqc.client.commands import Publication
from nsqc.client.errors import ClientError, ConnectError, LookupFailed, PublishFailed, Refused
from nsqc.client.httpaddress import checked_http_addresses, http_address
from nsqc.client.log import Log
from nsqc.client.lookup import nodes
from nsqc.client.options import checked

log = Log("nsqc.client")

# These nsqd are well but cannot store right now; another one may.
ELSEWHERE = ("E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED", "E_DMPUB_FAILED")
LEFT_OUT_SECONDS = 1.0      # how long spread publishes leave out an nsqd after its first failure; it doubles


class Down(NamedTuple):
    """An nsqd's last error, its number of consecutive failures, and the end of its exclusion from spread publishes
    (monotonic)."""

    reason: str
    failures: int
    until: float


class Failover:
    """nsqd: addresses in order. nsqlookupd: queried for them instead. retries: attempts after the first. first: index
    of the nsqd to start with. each_try: pause before every retry, not only after each round over all nsqd. spread:
    every publish goes to the next nsqd. poll_interval: seconds between lookups then. Raises ValueError, BadAddress,
    TypeError."""

    def __init__(self, nsqd: str | Iterable[str], nsqlookupd: str | Iterable[str], retries: int, backoff: Backoff, *,
                 first: int = 0, each_try: bool = False, spread: bool = False, poll_interval: float = 60.0):
        checked(retries=retries, backoff=backoff.first, spread=spread, poll_interval=poll_interval)
        self.addresses, self.nsqlookupd = nsqd_or_nsqlookupd(nsqd, nsqlookupd)
        self.retries, self.backoff, self.spread = retries, backoff, spread
        self.down: dict[str, Down] = {}         # nsqd that failed and have not worked since
        self._left_out = Backoff(max(backoff.first, LEFT_OUT_SECONDS))
        self._each_try, self._poll_interval = each_try, poll_interval
        self._next = first
        self._looked_up = -math.inf

    # ------------------------------------------------------------------ lookups

    def look_up(self, timeout: float, tls: bool | ssl.SSLContext | None = None) -> list[str]:
        """The nsqd that all nsqlookupd know; blocks, for timeout seconds at most. tls: for https URLs. Raises
        LookupFailed if no lookup has succeeded yet."""
        self._looked_up = time.monotonic()
        try:
            return nodes(self.nsqlookupd, timeout / len(self.nsqlookupd), tls) or self.addresses
        except LookupFailed as error:
            if not self.addresses:
                raise
            log.warning("%s; continuing with the known nsqd", error)
            return self.addresses

    def look_up_due(self) -> bool:
        """Whether spread publishes need a new lookup, besides those before connecting. True once per interval."""
        now = time.monotonic()
        if not self.spread or not self.nsqlookupd or now - self._looked_up < self._poll_interval:
            return False
        self._looked_up = now
        return True

    # ------------------------------------------------------------------ nsqd

    def target(self) -> str:
        """The nsqd to publish to now; with spread, the next one on each call. Raises ConnectError if none is known."""
        if not self.addresses:
            asked = ", ".join(http_address(address).text for address in self.nsqlookupd)
            raise ConnectError(f"nsqlookupd {asked}: no nsqd registered")
        if not self.spread:
            return self._current()
        now = time.monotonic()
        for _ in self.addresses:
            address = self._current()
            self._next += 1
            if address not in self.down or self.down[address].until <= now:
                return address
        return min(self.addresses, key=lambda address: self.down[address].until if address in self.down else 0.0)

    def _current(self) -> str:
        return self.addresses[self._next % len(self.addresses)]

    def move_on(self, address: str) -> None:
        """Switches to the next nsqd, unless another publisher has already left this address. Thread-safe."""
        if not self.spread and address in self.addresses and self._current() == address:
            self._next = self.addresses.index(address) + 1

    def failed(self, address: str, error: Exception) -> None:
        """An nsqd has failed: others are tried first."""
        failures = self.down[address].failures + 1 if address in self.down else 1
        self.down[address] = Down(str(error), failures, time.monotonic() + self._left_out.pause(failures))
        self.move_on(address)

    def worked(self, address: str) -> None:
        """An nsqd has acknowledged a message."""
        if self.down and self.down.pop(address, None) is not None:
            log.warning("%s: accepts messages again", address)

    def pause(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row."""
        return self.backoff.pause(failures if self._each_try else failures // max(len(self.addresses), 1))


class Tries:
    """The attempts of one publication, or of several consecutive ones until one succeeds. timeout: seconds without any
    acknowledgement after which no further attempt is made."""

    def __init__(self, failover: Failover, publication: Publication | None = None, timeout: float = math.inf):
        self._failover, self._timeout = failover, timeout
        self._publication = Publication(0) if publication is None else publication
        self._confirmed = 0         # acknowledged count when the last attempt failed
        self._failures = 0

    def succeeded(self) -> None:
        """Counts only consecutive failures."""
        self._failures = 0

    @property
    def _left(self) -> float:
        return self._publication.progress_at + self._timeout - time.monotonic()

    def patience(self) -> float:
        """Seconds for the next attempt: with several nsqd, half of the remaining time, to leave some for the next
        one."""
        return max(self._left / (2 if len(self._failover.addresses) > 1 else 1), 0.001)

    def failed(self, error: ClientError, address: str | None) -> float:
        """Seconds to pause before the next attempt, which goes to another nsqd than address. Raises the error itself if
        no nsqd would accept the message, PublishFailed when attempts or time are used up."""
        if isinstance(error, Refused) and error.code not in ELSEWHERE:
            raise error
        if address is not None:
            self._failover.failed(address, error)
        publication = self._publication
        if publication.acknowledged > self._confirmed:
            self._confirmed, self._failures = publication.acknowledged, 0
        self._failures += 1
        left = self._left
        if self._failures > self._failover.retries or left <= 0:
            tries = "1 try" if self._failures == 1 else f"{self._failures} tries"
            time_is_up = f" in {self._timeout:g} s" if left <= 0 else ""
            raise PublishFailed(f"given up after {tries}{time_is_up}: {error}", publication.acknowledged,
                                publication.sent - publication.acknowledged,
                                publication.total - publication.sent) from error
        return min(self._failover.pause(self._failures), left)


def nsqd_or_nsqlookupd(nsqd: str | Iterable[str], nsqlookupd: str | Iterable[str]) -> tuple[list[str], list[str]]:
    """Both as lists, one of them empty. Raises ValueError for both or neither, BadAddress, TypeError."""
    addresses = checked_addresses(nsqd), checked_http_addresses(nsqlookupd)
    if bool(addresses[0]) == bool(addresses[1]):
        raise ValueError("give either nsqd or nsqlookupd")
    return addresses
