"""The nsqd that a consumer takes from: which there are, when each is tried again, and its share of max_in_flight."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from nsqc.client.commands import channel_name, topic_name
from nsqc.client.failover import nsqd_or_nsqlookupd
from nsqc.client.options import checked

log = logging.getLogger("nsqc.client")

LONGEST_PAUSE = 30.0
TURN_SECONDS = 5.0      # how long a connection keeps its RDY where there are more connections than RDY
TICK_SECONDS = 0.5      # how often connections are looked after while nothing comes


class Link(Protocol):
    """What is asked of a connection."""

    @property
    def max_ready(self) -> int:
        """The largest RDY that this nsqd allows."""


L = TypeVar("L", bound=Link)


class Peer(Generic[L]):
    """One nsqd: its connection, or when the next try is due."""

    def __init__(self, address: str):
        self.address = address
        self.connection: L | None = None
        self.ready = 0
        self.failures = 0
        self.next_try = 0.0

    def connected(self, connection: L) -> None:
        """RDY begins at 0."""
        self.connection, self.ready = connection, 0


class Peers(Generic[L]):
    """All of them. Times are of time.monotonic(). Raises BadName, BadAddress, ValueError, TypeError."""

    def __init__(self, topic: str, channel: str, nsqd: str | Iterable[str], nsqlookupd: str | Iterable[str],
                 max_in_flight: int, connections: int, poll_interval: float, backoff: float):
        topic_name(topic), channel_name(channel)
        checked(max_in_flight=max_in_flight, connections=connections, poll_interval=poll_interval, backoff=backoff)
        addresses, self.nsqlookupd = nsqd_or_nsqlookupd(nsqd, nsqlookupd)
        self.max_in_flight = max_in_flight
        self._connections, self._poll_interval, self._backoff = connections, poll_interval, backoff
        self.all: list[Peer[L]] = self._at(addresses)
        self._looked = float("-inf")
        self._turn, self._turned = 0, float("-inf")

    def _at(self, addresses: Iterable[str]) -> list[Peer[L]]:
        return [Peer(address) for address in addresses for _ in range(self._connections)]

    @property
    def connected(self) -> list[tuple[Peer[L], L]]:
        """Those that are, with their connections."""
        return [(peer, peer.connection) for peer in self.all if peer.connection is not None]

    # ------------------------------------------------------------------ which there are

    @property
    def looked_up(self) -> bool:
        """Whether nsqlookupd have been asked before."""
        return self._looked > float("-inf")

    def look_up_due(self, now: float) -> bool:
        """Whether nsqlookupd are to be asked."""
        return bool(self.nsqlookupd) and now - self._looked >= self._poll_interval

    def asked(self, now: float) -> None:
        """They are being asked."""
        self._looked = now

    def found(self, addresses: list[str]) -> None:
        """What they have answered. An nsqd that is gone is kept while it answers."""
        self.all = [peer for peer in self.all if peer.connection is not None or peer.address in addresses]
        there = {peer.address for peer in self.all}
        self.all += self._at([address for address in addresses if address not in there])

    # ------------------------------------------------------------------ when to try

    def due(self, now: float) -> list[Peer[L]]:
        """Those to be connected to."""
        return [peer for peer in self.all if peer.connection is None and peer.next_try <= now]

    def failed(self, peer: Peer[L], error: Exception, now: float) -> None:
        """It cannot be reached, or is lost: another try after a pause that doubles."""
        peer.connection = None
        if not peer.failures:
            log.warning("%s; trying again", error)
        peer.next_try = now + min(self._backoff * 2 ** min(peer.failures, 20), LONGEST_PAUSE)
        peer.failures += 1

    # ------------------------------------------------------------------ RDY

    def shares(self, now: float) -> list[tuple[Peer[L], L, int]]:
        """The RDY of each that is to change; where there are more connections than max_in_flight, they take turns."""
        alive = self.connected
        if not alive:
            return []
        if now - self._turned >= TURN_SECONDS:
            self._turn, self._turned = self._turn + self.max_in_flight, now
        share, more = divmod(self.max_in_flight, len(alive))
        first = self._turn % len(alive)
        wanted = [(peer, connection, min(share + ((at - first) % len(alive) < more), connection.max_ready))
                  for at, (peer, connection) in enumerate(alive)]
        return [(peer, connection, want) for peer, connection, want in wanted if want != peer.ready]
