"""Consuming a channel of several nsqd: connections that come back, RDY spread over them."""

from __future__ import annotations

import logging
import selectors
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from nsqc.client.connection import Connection, channel_name, topic_name
from nsqc.client.errors import ConnectError, LookupFailed
from nsqc.client.lookup import lookup
from nsqc.client.message import Message, messages

log = logging.getLogger("nsqc.client")

LONGEST_PAUSE = 30.0
TURN_SECONDS = 5.0      # how long a connection keeps its RDY where there are more connections than RDY
TICK_SECONDS = 0.5      # how often connections are looked after while nothing comes
LOOK_SECONDS = 0.1      # and while messages that have come wait to be taken


class Peer:
    """One nsqd: its connection, or when the next try is due."""

    def __init__(self, address: str):
        self.address = address
        self.connection: Connection | None = None
        self.ready = 0
        self.failures = 0
        self.next_try = 0.0


class Consumer:
    """Iterate over it for messages; finish or requeue each of them.

    nsqd: addresses; or nsqlookupd, asked every poll_interval seconds. connections: for each nsqd. max_in_flight: over
    all connections. backoff: seconds before the first try to connect again; the pause doubles. Everything else goes to
    Connection. Heartbeats are answered while the consumer waits or takes messages: work on a message may take two
    heartbeat intervals at most, unless it touches the message. Raises BadName, and LookupFailed or Refused from
    iterating.
    """

    def __init__(self, topic: str, channel: str, nsqd: Sequence[str] = (), *, nsqlookupd: Sequence[str] = (),
                 max_in_flight: int = 1, connections: int = 1, poll_interval: float = 60.0, backoff: float = 0.1,
                 timeout: float = 10.0, **connection: Any):
        if bool(nsqd) == bool(nsqlookupd):
            raise ValueError("give either nsqd or nsqlookupd")
        if max_in_flight < 1 or connections < 1:
            raise ValueError("max_in_flight and connections are 1 or more")
        topic_name(topic), channel_name(channel)
        self.topic, self.channel, self.max_in_flight = topic, channel, max_in_flight
        self._nsqlookupd = [nsqlookupd] if isinstance(nsqlookupd, str) else list(nsqlookupd)
        self._connections, self._poll_interval, self._backoff = connections, poll_interval, backoff
        self._timeout, self._options = timeout, connection
        self._peers = self._peers_at([nsqd] if isinstance(nsqd, str) else nsqd)
        self._looked = float("-inf")
        self._looked_after = float("-inf")
        self._turn, self._turned = 0, time.monotonic()
        self._arrived: deque[Message] = deque()
        self._selector = selectors.DefaultSelector()
        self._closed = False

    # ------------------------------------------------------------------ messages

    def __iter__(self) -> Iterator[Message]:
        """Waits for messages until close()."""
        while not self._closed:
            message = self.get()
            if message is not None:
                yield message

    def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None where none comes within timeout seconds, or after close(). Raises LookupFailed,
        Refused."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            if not self._arrived or time.monotonic() - self._looked_after > LOOK_SECONDS:
                self._look_after()
            if self._arrived:
                return self._arrived.popleft()
            left = TICK_SECONDS if deadline is None else min(deadline - time.monotonic(), TICK_SECONDS)
            if left <= 0 and deadline is not None and time.monotonic() >= deadline:
                return None
            self._wait(max(left, 0))
        return None

    def _look_after(self) -> None:
        """All connections: made, read, answered, their RDY set."""
        self._looked_after = time.monotonic()
        self._look_up()
        self._connect()
        for peer in self._peers:
            if peer.connection is not None:
                self._take(peer)
        self._spread()

    def _take(self, peer: Peer) -> None:
        try:
            if peer.connection.pull():
                found = messages(peer.connection.inflow.columns(), peer.connection)
                peer.connection._held.update((message.id, None) for message in found)
                self._arrived.extend(found)
                peer.failures = 0
        except ConnectError as error:
            self._lost(peer, error)

    def _wait(self, seconds: float) -> None:
        if not any(peer.connection is not None and peer.connection.pending for peer in self._peers):
            self._selector.select(seconds)

    # ------------------------------------------------------------------ RDY

    def _spread(self) -> None:
        """Gives every connection its share; where there are more of them than max_in_flight, they take turns."""
        alive = [peer for peer in self._peers if peer.connection is not None]
        if not alive:
            return
        if time.monotonic() - self._turned >= TURN_SECONDS:
            self._turn, self._turned = self._turn + self.max_in_flight, time.monotonic()
        share, more = divmod(self.max_in_flight, len(alive))
        first = self._turn % len(alive)
        for at, peer in enumerate(alive):
            want = min(share + ((at - first) % len(alive) < more), peer.connection.max_ready)
            if want != peer.ready:
                try:
                    peer.connection.ready(want)
                    peer.ready = want
                except ConnectError as error:
                    self._lost(peer, error)

    # ------------------------------------------------------------------ connections

    def _peers_at(self, addresses: Sequence[str]) -> list[Peer]:
        return [Peer(address) for address in addresses for _ in range(self._connections)]

    def _look_up(self) -> None:
        """Which nsqd there are; those that are gone are kept while they answer."""
        now = time.monotonic()
        if not self._nsqlookupd or now - self._looked < self._poll_interval:
            return
        first, self._looked = self._looked == float("-inf"), now
        try:
            known = lookup(self.topic, self._nsqlookupd, self._timeout)
        except LookupFailed as error:
            if first:
                raise
            log.warning("%s; going on with the nsqd that are known", error)
            return
        self._peers = [peer for peer in self._peers if peer.connection is not None or peer.address in known]
        there = {peer.address for peer in self._peers}
        self._peers += self._peers_at([address for address in known if address not in there])

    def _connect(self) -> None:
        for peer in self._peers:
            if peer.connection is not None or peer.next_try > time.monotonic():
                continue
            try:
                made = Connection(peer.address, timeout=self._timeout, **self._options)
                try:
                    made.subscribe(self.topic, self.channel)
                except BaseException:
                    made.close()
                    raise
            except ConnectError as error:
                self._pause(peer, error)
                continue
            peer.connection, peer.ready = made, 0
            self._selector.register(made, selectors.EVENT_READ)

    def _lost(self, peer: Peer, error: ConnectError) -> None:
        """Its messages come again, from wherever they are then; those that nobody has taken yet are dropped here."""
        gone = peer.connection
        self._selector.unregister(gone)
        gone.close()
        self._arrived = deque(message for message in self._arrived if message.connection is not gone)
        peer.connection = None
        self._pause(peer, error)

    def _pause(self, peer: Peer, error: ConnectError) -> None:
        if not peer.failures:
            log.warning("%s; trying again", error)
        peer.next_try = time.monotonic() + min(self._backoff * 2 ** min(peer.failures, 20), LONGEST_PAUSE)
        peer.failures += 1

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Hands what was not answered back at once, to be delivered elsewhere, and closes."""
        if self._closed:
            return
        self._closed = True
        self._arrived.clear()
        for peer in self._peers:
            if peer.connection is not None:
                peer.connection.leave()
        self._selector.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
