"""Which nsqd a producer publishes to, how often it tries, and how long it pauses between."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from nsqc.client.address import checked_addresses
from nsqc.client.errors import ConnectError, LookupFailed, PublishFailed, Refused
from nsqc.client.lookup import nodes
from nsqc.client.options import checked

log = logging.getLogger("nsqc.client")

# The nsqd is well, but cannot store now: another one may.
ELSEWHERE = ("E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED")
LONGEST_PAUSE = 30.0


class Failover:
    """nsqd: addresses in order. nsqlookupd: asked for them instead. Raises ValueError, BadAddress, TypeError."""

    def __init__(self, nsqd: str | Iterable[str], nsqlookupd: str | Iterable[str], retries: int, backoff: float):
        checked(retries=retries, backoff=backoff)
        self.addresses, self.nsqlookupd = nsqd_or_nsqlookupd(nsqd, nsqlookupd)
        self.retries, self.backoff = retries, backoff
        self._turn = 0

    def look_up(self, timeout: float) -> list[str]:
        """The nsqd that all nsqlookupd know; blocks. Raises LookupFailed where none is known from before either."""
        try:
            return nodes(self.nsqlookupd, timeout) or self.addresses
        except LookupFailed as error:
            if not self.addresses:
                raise
            log.warning("%s; going on with the nsqd that are known", error)
            return self.addresses

    def target(self) -> str:
        """The nsqd whose turn it is. Raises ConnectError where none is known."""
        if not self.addresses:
            raise ConnectError(f"nsqlookupd {', '.join(self.nsqlookupd)}: no nsqd is known")
        return self.addresses[self._turn % len(self.addresses)]

    def move_on(self, address: str) -> None:
        """To the next nsqd, unless somebody else has left that address already. Several threads may do so at once."""
        if address in self.addresses and self.target() == address:
            self._turn = self.addresses.index(address) + 1

    def pause(self, number: int) -> float:
        """Seconds before a try; none before every nsqd had its turn."""
        rounds = number // max(len(self.addresses), 1)
        return min(self.backoff * 2 ** min(rounds - 1, 20), LONGEST_PAUSE) if rounds else 0.0


class Tries:
    """Those of one publication."""

    def __init__(self, failover: Failover):
        self._failover = failover
        self._number = 0

    def failed(self, error: ConnectError | Refused, address: str | None) -> float:
        """Seconds to pause before the next try, which goes to another nsqd than address. Raises the error itself where
        no nsqd would take it, PublishFailed where the tries are used up."""
        if isinstance(error, Refused) and error.code not in ELSEWHERE:
            raise error
        if address is not None:
            self._failover.move_on(address)
        self._number += 1
        if self._number > self._failover.retries:
            tries = "1 try" if self._number == 1 else f"{self._number} tries"
            raise PublishFailed(f"given up after {tries}: {error}") from error
        return self._failover.pause(self._number)


def nsqd_or_nsqlookupd(nsqd: str | Iterable[str], nsqlookupd: str | Iterable[str]) -> tuple[list[str], list[str]]:
    """Both, of which one is empty. Raises ValueError for both or none, BadAddress, TypeError."""
    found = checked_addresses(nsqd), checked_addresses(nsqlookupd)
    if bool(found[0]) == bool(found[1]):
        raise ValueError("give either nsqd or nsqlookupd")
    return found
