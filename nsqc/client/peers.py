"""The nsqd that a consumer takes messages from: which there are, when to reconnect to each, and its share of
max_in_flight. The policy of both Consumers and of Spark's stager."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from nsqc.client.backoff import Backoff
from nsqc.client.commands import channel_name, topic_name
from nsqc.client.failover import nsqd_or_nsqlookupd
from nsqc.client.options import checked

log = logging.getLogger("nsqc.client")

ROTATE_SECONDS = 5.0    # how long a connection keeps its RDY if there are more connections than RDY
TICK_SECONDS = 0.5      # how often connections are checked while nothing arrives


class HasMaxReady(Protocol):
    """What Peers needs of a connection."""

    @property
    def max_ready(self) -> int:
        """The largest RDY that this nsqd allows."""


C = TypeVar("C", bound=HasMaxReady)


class Peer(Generic[C]):
    """One connection to one nsqd, or when to try to connect next."""

    def __init__(self, address: str):
        self.address = address
        self.connection: C | None = None
        self.was_connected = False
        self.ready = 0                  # the RDY that was sent last
        self.failures = 0               # in a row
        self.error = ""                 # why it is not connected
        self.next_try = 0.0

    def connected(self, connection: C) -> None:
        """RDY starts at 0. Whoever consumes decides when to reset failures: an nsqd may accept and drop connections."""
        self.connection, self.ready, self.error, self.was_connected = connection, 0, "", True


class Peers(Generic[C]):
    """All of them. Times are of time.monotonic(). Raises BadName, BadAddress, ValueError, TypeError."""

    def __init__(self, topic: str, channel: str, nsqd: str | Iterable[str], nsqlookupd: str | Iterable[str],
                 max_in_flight: int, connections: int, poll_interval: float, backoff: Backoff):
        topic_name(topic), channel_name(channel)
        checked(max_in_flight=max_in_flight, connections=connections, poll_interval=poll_interval,
                backoff=backoff.first)
        addresses, self.nsqlookupd = nsqd_or_nsqlookupd(nsqd, nsqlookupd)
        self.max_in_flight = max_in_flight
        self._connections, self._poll_interval, self._backoff = connections, poll_interval, backoff
        self.all: list[Peer[C]] = self._peers_at(addresses)
        self._last_lookup = float("-inf")
        self._first_ready, self._rotated = 0, float("-inf")

    def _peers_at(self, addresses: Iterable[str]) -> list[Peer[C]]:
        return [Peer(address) for address in addresses for _ in range(self._connections)]

    @property
    def connected(self) -> list[tuple[Peer[C], C]]:
        """The connected peers with their connections."""
        return [(peer, peer.connection) for peer in self.all if peer.connection is not None]

    # ------------------------------------------------------------------ lookups

    @property
    def looked_up(self) -> bool:
        """Whether a lookup was made before."""
        return self._last_lookup > float("-inf")

    @property
    def next_lookup(self) -> float:
        """When the next lookup is due."""
        return self._last_lookup + self._poll_interval if self.nsqlookupd else float("inf")

    def look_up_due(self, now: float) -> bool:
        """Whether to ask nsqlookupd now."""
        return bool(self.nsqlookupd) and now - self._last_lookup >= self._poll_interval

    def asked(self, now: float) -> None:
        """A lookup is made at this time."""
        self._last_lookup = now

    def found(self, addresses: list[str]) -> None:
        """Takes the result of a lookup. An nsqd that is missing in it is kept while it is connected."""
        self.all = [peer for peer in self.all if peer.connection is not None or peer.address in addresses]
        known = {peer.address for peer in self.all}
        self.all += self._peers_at([address for address in addresses if address not in known])

    # ------------------------------------------------------------------ reconnecting

    def due(self, now: float) -> list[Peer[C]]:
        """The peers to connect to now."""
        return [peer for peer in self.all if peer.connection is None and peer.next_try <= now]

    @property
    def next_try(self) -> float:
        """When the next peer is due; infinity if all are connected."""
        return min((peer.next_try for peer in self.all if peer.connection is None), default=float("inf"))

    @property
    def all_tried(self) -> bool:
        """Whether nsqlookupd has answered, and every peer is connected or has failed to."""
        return ((self.looked_up or not self.nsqlookupd)
                and all(peer.connection is not None or peer.failures for peer in self.all))

    def failed(self, peer: Peer[C], error: Exception, now: float) -> None:
        """The peer is unreachable or lost: the next try follows after a pause that doubles each time."""
        peer.connection = None
        peer.error = str(error)
        if not peer.failures:
            log.warning("%s; trying again", error)
        peer.failures += 1
        peer.next_try = now + self._backoff.pause(peer.failures)

    # ------------------------------------------------------------------ RDY

    def shares(self, now: float) -> list[tuple[Peer[C], C, int]]:
        """The peers whose RDY has to change, with the new RDY. If there are more connections than max_in_flight, they
        take turns."""
        connected = self.connected
        if not connected:
            return []
        if now - self._rotated >= ROTATE_SECONDS:
            self._first_ready, self._rotated = self._first_ready + self.max_in_flight, now
        share, rest = divmod(self.max_in_flight, len(connected))
        first = self._first_ready % len(connected)
        shares = [(peer, connection, min(share + ((at - first) % len(connected) < rest), connection.max_ready))
                  for at, (peer, connection) in enumerate(connected)]
        return [(peer, connection, ready) for peer, connection, ready in shares if ready != peer.ready]
