"""Consuming a channel of several nsqd: lost connections are made again, RDY is spread over all of them."""

from __future__ import annotations

import logging
import selectors
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Unpack

from nsqc.client.backoff import Backoff
from nsqc.client.connection import Connection
from nsqc.client.dialer import Dialer
from nsqc.client.errors import ConnectError, LookupFailed
from nsqc.client.lookup import lookup
from nsqc.client.message import Message
from nsqc.client.options import ConnectionOptions, Options
from nsqc.client.peers import TICK_SECONDS, Peer, Peers

log = logging.getLogger("nsqc.client")

OWN = ("topic", "channel", "nsqd", "nsqlookupd", "max_in_flight", "connections", "poll_interval", "backoff")
CHECK_SECONDS = 0.1     # how often connections are checked while received messages wait for the application


class Consumer:
    """Iterate over it for messages; finish or requeue each of them. If the connection of a message is lost first, nsqd
    delivers the message again, and its finish(), requeue() and touch() do nothing.

    nsqd: addresses; or nsqlookupd, asked every poll_interval seconds. connections: per nsqd. max_in_flight: over all
    connections. backoff: seconds before the first reconnect; the pause doubles. All other options go to Connection.
    Heartbeats are answered only inside get() and iteration: work on one message may take up to two heartbeat intervals,
    unless it touches the message. Raises BadName, BadAddress, ValueError, TypeError; LookupFailed or Refused from
    iterating.
    """

    def __init__(self, topic: str, channel: str, nsqd: str | Iterable[str] = (), *,
                 nsqlookupd: str | Iterable[str] = (), max_in_flight: int = 1, connections: int = 1,
                 poll_interval: float = 60.0, backoff: float = 0.1, timeout: float = 10.0,
                 **options: Unpack[ConnectionOptions]):
        self._closed = True
        self._options = Options("Consumer", OWN, timeout, options)
        self._peers: Peers[Connection] = Peers(topic, channel, nsqd, nsqlookupd, max_in_flight, connections,
                                               poll_interval, Backoff(backoff))
        self.topic, self.channel, self.max_in_flight = topic, channel, max_in_flight
        self._checked = float("-inf")
        self._arrived: deque[Message] = deque()
        # poll, not epoll: a forked child must not share kernel state with its parent.
        self._selector = selectors.PollSelector()
        self._dialer = Dialer(self._subscribed, self._selector)
        self._closed = False

    # ------------------------------------------------------------------ messages

    def __iter__(self) -> Iterator[Message]:
        """Yields messages until close()."""
        while not self._closed:
            message = self.get()
            if message is not None:
                yield message

    def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none arrives within timeout seconds, or after close(). Raises LookupFailed,
        Refused."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            if not self._arrived or time.monotonic() - self._checked > CHECK_SECONDS:
                self._check_connections()
            if self._arrived:
                return self._arrived.popleft()
            left = TICK_SECONDS if deadline is None else min(deadline - time.monotonic(), TICK_SECONDS)
            if left <= 0 and deadline is not None and time.monotonic() >= deadline:
                return None
            self._wait(max(left, 0))
        return None

    def _check_connections(self) -> None:
        """Connects where due, reads, answers heartbeats and updates RDY."""
        self._checked = time.monotonic()
        self._look_up()
        self._connect()
        for peer, connection in self._peers.connected:
            try:
                if connection.pull():
                    self._arrived.extend(connection.collected())
                    peer.failures = 0
            except ConnectError as error:
                self._lost(peer, error)
        for peer, connection, ready in self._peers.shares(time.monotonic()):
            try:
                connection.ready(ready)
                peer.ready = ready
            except ConnectError as error:
                self._lost(peer, error)

    def _wait(self, seconds: float) -> None:
        if not any(connection.pending for _, connection in self._peers.connected):
            self._selector.select(seconds)

    # ------------------------------------------------------------------ connections

    def _look_up(self) -> None:
        now, first = time.monotonic(), not self._peers.looked_up
        if not self._peers.look_up_due(now):
            return
        self._peers.asked(now)
        try:
            self._peers.found(lookup(self.topic, self._peers.nsqlookupd, self._options.timeout, self._options.tls))
        except LookupFailed as error:
            if first:
                raise
            log.warning("%s; continuing with the known nsqd", error)

    def _connect(self) -> None:
        for peer, outcome in self._dialer.finished():
            if isinstance(outcome, ConnectError):
                self._peers.failed(peer, outcome, time.monotonic())
            elif isinstance(outcome, Exception):
                raise outcome
            elif peer not in self._peers.all:   # nsqlookupd names it no more
                outcome.close()
            else:
                peer.connected(outcome)
                self._selector.register(outcome, selectors.EVENT_READ)
        for peer in self._peers.due(time.monotonic()):
            self._dialer.dial(peer)

    def _subscribed(self, address: str) -> Connection:
        """A connection that consumes. Runs on a thread."""
        connection = Connection.with_options(address, self._options)
        connection.tolerant = True
        try:
            connection.subscribe(self.topic, self.channel)
        except BaseException:
            connection.close()
            raise
        return connection

    def _lost(self, peer: Peer[Connection], error: ConnectError) -> None:
        """Drops a connection, and its messages that the application has not received: nsqd delivers them again."""
        lost = peer.connection
        if lost is not None:
            self._selector.unregister(lost)
            lost.close()
        self._arrived = deque(message for message in self._arrived if message.connection is not lost)
        self._peers.failed(peer, error, time.monotonic())

    # ------------------------------------------------------------------ closing

    def close(self) -> None:
        """Requeues all unanswered messages at once, for other consumers, and closes."""
        if self._closed:
            return
        self._closed = True
        self._arrived.clear()
        for _, connection in self._peers.connected:
            connection.leave()
        self._selector.close()
        self._dialer.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
