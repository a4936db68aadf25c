"""A consumer's nsqd: the current list, when to reconnect to each, and its share of max_in_flight. The policy of both
Consumers, of the tools and of Spark's stager; and the state that both Consumers share.
"""

from __future__ import annotations

import logging
import math
import ssl
import time
from collections import deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from nsqc.client.address import checked_addresses, checked_http_addresses, http_address
from nsqc.client.commands import Publication, channel_name, topic_name
from nsqc.client.errors import ClientError, ConnectError, LookupFailed, PublishFailed, Refused, is_permanent
from nsqc.client.frames import Message
from nsqc.client.handling import ConsumerStats, PeerStats
from nsqc.client.log import Log
from nsqc.client.lookup import nodes
from nsqc.client.options import ConnectionOptions, Options, checked

# ====================================================================== backoff
# Pauses between retries.

LONGEST_PAUSE = 30.0
MOST_DOUBLINGS = 20     # keeps the power small; the longest pause is reached long before


class Backoff(NamedTuple):
    """Pauses that double from first up to longest, in seconds."""

    first: float
    longest: float = LONGEST_PAUSE

    def pause(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row."""
        return min(self.first * 2 ** min(failures - 1, MOST_DOUBLINGS), self.longest) if failures else 0.0


# ====================================================================== failover
# Chooses the nsqd to publish to, the number of retries, and the pauses between them: the policy of both Producers and
# of Spark's sink.

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

    def look_up(self, timeout: float, tls: bool | ssl.SSLContext | None = None,
                secret: bytes | str | None = None) -> list[str]:
        """The nsqd that all nsqlookupd know; blocks, for timeout seconds at most. tls, secret: as of lookup(). Raises
        LookupFailed if no lookup has succeeded yet."""
        self._looked_up = time.monotonic()
        try:
            return nodes(self.nsqlookupd, timeout / len(self.nsqlookupd), tls, secret) or self.addresses
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
        self.publication = Publication(0) if publication is None else publication
        self._confirmed = 0         # acknowledged count when the last attempt failed
        self._failures = 0

    def succeeded(self) -> None:
        """Counts only consecutive failures."""
        self._failures = 0

    @property
    def _left(self) -> float:
        return self.publication.progress_at + self._timeout - time.monotonic()

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
        publication = self.publication
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


# ====================================================================== peers


OWN = ("topic", "channel", "nsqd", "nsqlookupd", "max_in_flight", "connections", "poll_interval", "backoff",
       "touch_limit")
# With more connections than RDY, an idle connection passes its RDY on after a tick, a busy one after this time.
ROTATE_SECONDS = 5.0
TICK_SECONDS = 0.5      # interval for checking connections while nothing arrives


class Receiving(Protocol):
    """The parts of a connection used here. failed_ids: messages answered too late. not_moved: errors of DEAD."""

    address: str
    failed_ids: list[bytes]
    not_moved: list[str]

    @property
    def max_ready(self) -> int:
        """The largest RDY that this nsqd allows."""

    @property
    def in_flight(self) -> int:
        """Messages received and not answered, as far as the connection knows."""

    def collected(self) -> list[Message]:
        """The messages received since the last call."""


C = TypeVar("C", bound=Receiving)


class Peer(Generic[C]):
    """One connection to one nsqd, or the time of its next dial."""

    def __init__(self, address: str):
        self.address = address
        self.connection: C | None = None
        self.was_connected = False
        self.ready = 0                  # last RDY sent
        self.backs_off = False          # sent with it
        self.ready_since = 0.0          # when RDY last rose above 0
        self.ready_until = 0.0          # when RDY was last above 0
        self.received_at = 0.0          # when messages last arrived
        self.failures = 0               # consecutive
        self.error = ""                 # why it is not connected
        self.fault: Exception | None = None     # the same, if it is permanent
        self.next_try = 0.0

    def connected(self, connection: C) -> None:
        """RDY starts at 0. Failures are reset when messages arrive: an nsqd may accept and drop connections."""
        if self.error:
            log.warning("%s: connected%s", self.address, " again" if self.was_connected else "")
        self.connection, self.ready, self.error, self.was_connected = connection, 0, "", True
        self.backs_off = False
        self.fault = None

    def received(self, now: float) -> None:
        """Messages have arrived."""
        self.failures, self.received_at = 0, now

    def is_busy(self, now: float) -> bool:
        """Whether its RDY is in use."""
        return now - max(self.received_at, self.ready_since) < TICK_SECONDS or (
            self.connection is not None and self.connection.in_flight > 0)


class Peers(Generic[C]):
    """All of them. max_in_flight: None for one per connection. Times are of time.monotonic(). Raises BadName,
    BadAddress, ValueError, TypeError."""

    def __init__(self, topic: str, channel: str, nsqd: str | Iterable[str], nsqlookupd: str | Iterable[str],
                 max_in_flight: int | None, connections: int, poll_interval: float, backoff: Backoff):
        topic_name(topic), channel_name(channel)
        checked(max_in_flight=max_in_flight, connections=connections, poll_interval=poll_interval,
                backoff=backoff.first)
        addresses, self.nsqlookupd = nsqd_or_nsqlookupd(nsqd, nsqlookupd)
        self.max_in_flight = max_in_flight
        self.least = 1                  # in flight, if max_in_flight is None
        self.cap: int | None = None     # in flight until further notice; None: no limit besides the options
        self.backs_off = False          # that is because of failures
        self._connections, self._poll_interval, self._backoff = connections, poll_interval, backoff
        self.all: list[Peer[C]] = self._peers_at(addresses)
        self._last_lookup = float("-inf")

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
        """Whether to query nsqlookupd now."""
        return bool(self.nsqlookupd) and now - self._last_lookup >= self._poll_interval

    def asked(self, now: float) -> None:
        """Records a lookup at this time."""
        self._last_lookup = now

    def found(self, addresses: list[str]) -> None:
        """Processes the result of a lookup. An nsqd missing from it stays while it is connected."""
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

    @property
    def fault(self) -> Exception | None:
        """A permanent error of one nsqd, if each has one: no message can arrive. One with another error may come back,
        and one without an error delivers."""
        faults = [peer.fault for peer in self.all]
        return faults[0] if faults and None not in faults else None

    def failed(self, peer: Peer[C], error: Exception, now: float) -> None:
        """The peer is unreachable or lost: the next try follows after a pause that doubles each time."""
        peer.connection = None
        peer.fault = error if is_permanent(error) else None
        if not peer.error:
            log.log(logging.WARNING if peer.fault is None else logging.ERROR, "%s; trying again", error)
        peer.error = str(error)
        peer.failures += 1
        peer.next_try = now + self._backoff.pause(peer.failures)

    # ------------------------------------------------------------------ RDY

    def in_flight(self, connections: int) -> int:
        """Messages that may be in flight over this many connections."""
        allowed = max(connections, self.least) if self.max_in_flight is None else self.max_in_flight
        return allowed if self.cap is None else min(allowed, self.cap)

    def shares(self, now: float) -> list[tuple[Peer[C], C, int]]:
        """The peers whose RDY has to change, with the new RDY: equal shares, or, with more connections than may be in
        flight, 1 for some of them at a time."""
        connected = self.connected
        total = self.in_flight(len(connected))
        if total < len(connected):
            holders = self._holders(connected, total, now)
            wanted = [1 if peer in holders else 0 for peer, _ in connected]
        else:
            share, rest = divmod(total, len(connected)) if connected else (0, 0)
            wanted = [share + (at < rest) for at in range(len(connected))]
        changes = []
        for (peer, connection), count in zip(connected, wanted, strict=True):
            ready = min(count, connection.max_ready)
            if ready and not peer.ready:
                peer.ready_since = now
            if peer.ready:
                peer.ready_until = now
            if ready != peer.ready or self.backs_off != peer.backs_off:
                changes.append((peer, connection, ready))
        return changes

    @staticmethod
    def _holders(connected: list[tuple[Peer[C], C]], total: int, now: float) -> set[Peer[C]]:
        """The peers that get RDY 1. Busy ones keep it for a while; the others get it in the order of their last
        RDY, as soon as the total of messages in flight stays within its limit."""
        kept = [peer for peer, _ in connected
                if peer.ready and peer.is_busy(now) and now - peer.ready_since < ROTATE_SECONDS][:total]
        holders = set(kept)
        elsewhere = sum(connection.in_flight for peer, connection in connected if peer not in holders)
        free = max(total - len(kept) - elsewhere, 0)
        waiting = sorted((peer for peer, _ in connected if peer not in holders),
                         key=lambda peer: now if peer.ready else peer.ready_until)
        return holders | set(waiting[:free])


class BaseConsumer(Generic[C]):
    """The part of both Consumers without I/O: options, nsqd, and the messages that the application has not taken.
    Raises BadName, BadAddress, ValueError, TypeError."""

    def __init__(self, topic: str, channel: str, nsqd: str | Iterable[str], nsqlookupd: str | Iterable[str],
                 max_in_flight: int | None, connections: int, poll_interval: float, backoff: float, touch_limit: float,
                 timeout: float, options: ConnectionOptions):
        self._options = Options("Consumer", OWN, timeout, options)
        checked(touch_limit=touch_limit)
        self._peers: Peers[C] = Peers(topic, channel, nsqd, nsqlookupd, max_in_flight, connections, poll_interval,
                                      Backoff(backoff))
        self.topic, self.channel, self.max_in_flight = topic, channel, max_in_flight
        self._touch_limit = touch_limit
        self._arrived: deque[Message] = deque()
        self._received = 0
        self._stopping = False                      # see stop()
        self._error: Exception | None = None        # raised by the next get()
        self._closed = False

    def serve_at_least(self, count: int) -> None:
        """Allows this many messages in flight, if max_in_flight is None and there are fewer connections."""
        self._peers.least = count

    def stats(self) -> ConsumerStats:
        """Messages received so far, and the state of each connection."""
        return ConsumerStats(self._received, len(self._arrived), [
            PeerStats(peer.address, peer.connection is not None, peer.error, peer.ready,
                      0 if peer.connection is None else peer.connection.in_flight) for peer in self._peers.all])

    def _failed(self, peer: Peer[C], error: Exception) -> None:
        """An nsqd cannot be reached, refuses the client, or is lost."""
        self._peers.failed(peer, error, time.monotonic())
        self._error = self._peers.fault or self._error

    def _report_late(self, connection: C) -> None:
        """Logs the messages that were answered after nsqd had timed them out, or that it could not move."""
        for error in connection.not_moved:
            log.warning("%s: %s; nsqd delivers the message of %s/%s again after its timeout", connection.address, error,
                        self.topic, self.channel)
        connection.not_moved.clear()
        if late := set(connection.failed_ids):
            connection.failed_ids.clear()
            log.warning("%s: messages of %s/%s answered too late: %d, such as %s; nsqd delivers a message again after "
                        "its timeout", connection.address, self.topic, self.channel, len(late),
                        min(late).decode(errors="replace"))

    def _take(self, peer: Peer[C], connection: C) -> None:
        """Takes the messages that a connection has received; requeues them once the consumer stops."""
        messages = connection.collected()
        peer.received(time.monotonic())
        self._received += len(messages)
        if self._stopping:
            for message in messages:
                message.requeue()
        else:
            self._arrived.extend(messages)
