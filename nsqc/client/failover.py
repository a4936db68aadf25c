"""Which nsqd to publish to, how often to try, and how long to pause in between: the policy of both Producers and of
Spark's sink."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterable

from nsqc.client.address import checked_addresses
from nsqc.client.backoff import Backoff
from nsqc.client.errors import ClientError, ConnectError, LookupFailed, PublishFailed, Refused
from nsqc.client.httpaddress import checked_http_addresses, http_address
from nsqc.client.lookup import nodes
from nsqc.client.options import checked

log = logging.getLogger("nsqc.client")

# These nsqd are well but cannot store right now; another one may.
ELSEWHERE = ("E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED")


class Failover:
    """nsqd: addresses in order. nsqlookupd: asked for them instead. retries: tries after the first. first: index of the
    nsqd to start with. each_try: pause before every retry, not only after each round over all nsqd. Raises ValueError,
    BadAddress, TypeError."""

    def __init__(self, nsqd: str | Iterable[str], nsqlookupd: str | Iterable[str], retries: int, backoff: Backoff, *,
                 first: int = 0, each_try: bool = False):
        checked(retries=retries, backoff=backoff.first)
        self.addresses, self.nsqlookupd = nsqd_or_nsqlookupd(nsqd, nsqlookupd)
        self.retries, self.backoff = retries, backoff
        self._each_try = each_try
        self._next = first

    def look_up(self, timeout: float, tls: bool | ssl.SSLContext | None = None) -> list[str]:
        """The nsqd that all nsqlookupd know; blocks. tls: for https URLs. Raises LookupFailed if no lookup has
        succeeded yet."""
        try:
            return nodes(self.nsqlookupd, timeout, tls) or self.addresses
        except LookupFailed as error:
            if not self.addresses:
                raise
            log.warning("%s; continuing with the known nsqd", error)
            return self.addresses

    def target(self) -> str:
        """The nsqd to publish to now. Raises ConnectError if none is known."""
        if not self.addresses:
            asked = ", ".join(http_address(address).text for address in self.nsqlookupd)
            raise ConnectError(f"nsqlookupd {asked}: no nsqd is known")
        return self.addresses[self._next % len(self.addresses)]

    def move_on(self, address: str) -> None:
        """Switches to the next nsqd, unless another publisher has left this address already. Thread-safe."""
        if address in self.addresses and self.target() == address:
            self._next = self.addresses.index(address) + 1

    def pause(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row."""
        return self.backoff.pause(failures if self._each_try else failures // max(len(self.addresses), 1))


class Tries:
    """The tries of one publication, or of several in a row until one succeeds."""

    def __init__(self, failover: Failover):
        self._failover = failover
        self._failures = 0

    def succeeded(self) -> None:
        """Only failures in a row count."""
        self._failures = 0

    def failed(self, error: ClientError, address: str | None) -> float:
        """Seconds to pause before the next try, which goes to another nsqd than address. Raises the error itself if no
        nsqd would accept the message, PublishFailed when the tries are used up."""
        if isinstance(error, Refused) and error.code not in ELSEWHERE:
            raise error
        if address is not None:
            self._failover.move_on(address)
        self._failures += 1
        if self._failures > self._failover.retries:
            tries = "1 try" if self._failures == 1 else f"{self._failures} tries"
            raise PublishFailed(f"given up after {tries}: {error}") from error
        return self._failover.pause(self._failures)


def nsqd_or_nsqlookupd(nsqd: str | Iterable[str], nsqlookupd: str | Iterable[str]) -> tuple[list[str], list[str]]:
    """Both as lists, one of them empty. Raises ValueError for both or neither, BadAddress, TypeError."""
    addresses = checked_addresses(nsqd), checked_http_addresses(nsqlookupd)
    if bool(addresses[0]) == bool(addresses[1]):
        raise ValueError("give either nsqd or nsqlookupd")
    return addresses
