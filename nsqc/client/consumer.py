"""Consumes a channel of several nsqd: reconnects lost connections, and spreads RDY over all of them."""

from __future__ import annotations

import os
import selectors
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Unpack

from nsqc.client.connection import Connection, Dialer, Waker, subscribed
from nsqc.client.errors import ClientError, ConnectError, LookupFailed, Refused
from nsqc.client.frames import Message
from nsqc.client.log import Log
from nsqc.client.lookup import lookup
from nsqc.client.options import ConnectionOptions
from nsqc.client.peers import TICK_SECONDS, BaseConsumer, Peer

log = Log("nsqc.client")

CHECK_SECONDS = 0.1     # interval for checking connections while received messages wait for the application
# How often the background thread maintains connections while the application works. nsqd's shortest heartbeat
# interval is a second, and it waits for two of them.
CARE_SECONDS = 0.25
_consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()


class Consumer(BaseConsumer[Connection]):
    """Iterate over it for messages; finish or requeue each of them. If the connection of a message is lost first, nsqd
    delivers the message again, and its finish(), requeue() and touch() do nothing.

    nsqd: addresses; or nsqlookupd, queried every poll_interval seconds. connections: per nsqd. max_in_flight: over all
    connections; None: one per connection. backoff: seconds before the first reconnect; the pause doubles. touch_limit:
    seconds for which a message is touched automatically until it is answered; 0: never. All other options go to
    Connection.

    A background thread answers heartbeats, reconnects and touches while the application works on messages. Any thread
    may take messages, and answer them. Raises BadName, BadAddress, ValueError, TypeError; from iterating, LookupFailed,
    and if no nsqd can deliver, Refused, WrongPort, NotOffered or TlsRefused."""

    def __init__(self, topic: str, channel: str, nsqd: str | Iterable[str] = (), *,
                 nsqlookupd: str | Iterable[str] = (), max_in_flight: int | None = None, connections: int = 1,
                 poll_interval: float = 60.0, backoff: float = 0.1, touch_limit: float = 0.0, timeout: float = 10.0,
                 **options: Unpack[ConnectionOptions]):
        super().__init__(topic, channel, nsqd, nsqlookupd, max_in_flight, connections, poll_interval, backoff,
                         touch_limit, timeout, options)
        self._checked = float("-inf")
        # Held by the thread that maintains the connections: the one inside get(), otherwise the background thread.
        self._turn = threading.RLock()
        self._carer: threading.Thread | None = None
        self._ended = threading.Event()
        self._prepare()
        _consumers.add(self)

    def _prepare(self) -> None:
        """Creates the means of waiting, and of calls on threads."""
        # poll, not epoll: a forked child must not share kernel state with its parent.
        self._selector = selectors.PollSelector()
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._dials: Dialer[Peer[Connection], Connection] = Dialer(self._waker.wake)
        self._lookups: Dialer[str, list[str]] = Dialer(self._waker.wake)

    # ------------------------------------------------------------------ messages

    def __iter__(self) -> Iterator[Message]:
        """Yields messages until close() or stop()."""
        while not self._closed and not self._stopping:
            message = self.get()
            if message is not None:
                yield message

    def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none arrives within timeout seconds, or after close() or stop(). Raises
        LookupFailed. If every nsqd has a permanent error, raises Refused, WrongPort, NotOffered or TlsRefused after
        each try; a later call tries again."""
        now = time.monotonic()
        if self._arrived and now - self._checked <= CHECK_SECONDS and not self._stopping:
            try:
                return self._arrived.popleft()      # without the lock: a message goes to the thread that pops it
            except IndexError:
                now = time.monotonic()              # another thread was faster
        deadline = None if timeout is None else now + timeout
        if not self._turn.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
            return None
        try:
            if self._carer is None and not self._closed:
                self._carer = threading.Thread(target=care_for, args=(weakref.ref(self), self._ended), daemon=True,
                                               name=f"nsqc {self.topic}/{self.channel}")
                self._carer.start()
            return self._next(deadline)
        finally:
            self._turn.release()

    def _next(self, deadline: float | None) -> Message | None:
        now = time.monotonic()
        if (now - self._checked < CHECK_SECONDS and not (self._arrived or self._stopping or self._error)
                and (deadline is None or deadline > now)):
            # Everything was read just now, before the last message was returned.
            self._wait(TICK_SECONDS if deadline is None else min(deadline - now, TICK_SECONDS))
            self._checked = float("-inf")
        while not self._closed and not self._stopping:
            if self._error is None and (not self._arrived or time.monotonic() - self._checked > CHECK_SECONDS):
                self._check_connections()
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            with suppress(IndexError):
                return self._arrived.popleft()
            left = TICK_SECONDS if deadline is None else min(deadline - time.monotonic(), TICK_SECONDS)
            if left <= 0 and deadline is not None and time.monotonic() >= deadline:
                return None
            self._wait(max(left, 0))
        return None

    def wake(self) -> None:
        """Makes a waiting get() check its connections, and whether the consumer is closed. Thread-safe; callable from
        signal handlers."""
        self._waker.wake()

    def _check_connections(self) -> None:
        """Connects where due, reads, answers heartbeats, touches and updates RDY."""
        self._checked = time.monotonic()
        self._look_up()
        self._connect()
        for peer, connection in self._peers.connected:
            try:
                if connection.pull():
                    self._take(peer, connection)
                self._report_late(connection)
                connection.keep_alive(self._checked, self._touch_limit)
            except (ConnectError, Refused) as error:
                self._lost(peer, error)
        backs_off = self._peers.backs_off       # once: throttle() runs on other threads, and what is sent is remembered
        for peer, connection, ready in self._peers.shares(time.monotonic()):
            try:
                connection.ready(ready, backs_off)
                peer.ready, peer.backs_off = ready, backs_off
            except ConnectError as error:
                self._lost(peer, error)

    def _wait(self, seconds: float) -> None:
        if not any(connection.pending for _, connection in self._peers.connected):
            self._selector.select(seconds)

    def look_after(self) -> None:
        """Checks the connections, unless a thread inside get() does. For the background thread."""
        if time.monotonic() - self._checked < CARE_SECONDS or not self._turn.acquire(blocking=False):
            return
        try:
            if not self._closed and self._error is None:
                self._check_connections()
        except Exception as error:      # any exception: the application has to see it
            self._error = error
        finally:
            self._turn.release()

    # ------------------------------------------------------------------ flow

    def throttle(self, most: int | None, backs_off: bool = False) -> None:
        """Limits the messages in flight until further notice, 0 for none; None: no limit besides the options.
        backs_off: because of failures, as nsqc's statistics then show."""
        self._peers.cap, self._peers.backs_off = most, backs_off
        self._checked = float("-inf")
        self.wake()

    def stop(self) -> None:
        """Ends iterations, and get() returns None: for any thread, and for signal handlers. close() does the rest."""
        self._stopping = True
        self.wake()

    def hand_back(self) -> None:
        """stop(), and requeues at once the messages that get() has not returned, for other consumers. Messages that it
        has returned can still be answered."""
        self.stop()
        self.throttle(0)
        with self._turn:
            with suppress(IndexError):
                while True:
                    self._arrived.popleft().requeue()
            if not self._closed:
                self._check_connections()

    # ------------------------------------------------------------------ connections

    def _look_up(self) -> None:
        if self._peers.look_up_due(time.monotonic()):
            self._lookups.start(self.topic, partial(lookup, self.topic, self._peers.nsqlookupd, self._options.timeout,
                                                    self._options.tls, self._options.auth_secret))

    def _connect(self) -> None:
        self._waker.calm()
        for _, found in self._lookups.finished():
            self._looked_up(found)
        for peer, outcome in self._dials.finished():
            if isinstance(outcome, Connection):
                self._connected(peer, outcome)
                continue
            self._failed(peer, outcome)
            if not isinstance(outcome, ClientError):
                self._error = outcome
        for peer in self._peers.due(time.monotonic()):
            self._dials.start(peer, partial(self._subscribed, peer.address))

    def _looked_up(self, outcome: list[str] | Exception) -> None:
        first = not self._peers.looked_up
        self._peers.asked(time.monotonic())
        if isinstance(outcome, list):
            self._peers.found(outcome)
        elif first or not isinstance(outcome, LookupFailed):
            raise outcome
        else:
            log.warning("%s; continuing with the known nsqd", outcome)

    def _connected(self, peer: Peer[Connection], connection: Connection) -> None:
        if peer not in self._peers.all:     # nsqlookupd no longer lists it
            connection.close()
            return
        peer.connected(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _subscribed(self, address: str) -> Connection:
        """A consuming connection. Runs on a thread."""
        return subscribed(Connection.with_options(address, self._options), self.topic, self.channel)

    def _lost(self, peer: Peer[Connection], error: ClientError) -> None:
        """Drops a connection and its messages that the application has not received: nsqd delivers them again."""
        lost = peer.connection
        if lost is not None:
            self._selector.unregister(lost)
            lost.close()
        # In place: get() pops without a lock.
        for _ in range(len(self._arrived)):
            with suppress(IndexError):
                message = self._arrived.popleft()
                if message.connection is not lost:
                    self._arrived.append(message)
        self._failed(peer, error)

    # ------------------------------------------------------------------ closing

    def close(self) -> None:
        """Requeues all unanswered messages at once, for other consumers, and closes."""
        if self._closed:
            return
        self._closed = True
        self._ended.set()
        self.wake()
        with self._turn:
            self._arrived.clear()
            for _, connection in self._peers.connected:
                connection.leave()
            self._selector.close()
            self._dials.close()
            self._waker.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forked(self) -> None:
        """In a forked child: the threads do not exist, including one that held a lock, and the connections are
        the parent's. The next get() connects."""
        self._turn = threading.RLock()
        self._carer = None
        self._arrived.clear()
        self._prepare()
        for peer in self._peers.all:
            peer.connection = None


def care_for(consumer: weakref.ref[Consumer], ended: threading.Event) -> None:
    """The background thread of a consumer, until the consumer is closed or garbage-collected."""
    while not ended.wait(CARE_SECONDS):
        found = consumer()
        if found is None:
            return
        with suppress(OSError):     # the interpreter is shutting down
            found.look_after()
        del found


def _after_fork() -> None:
    for consumer in list(_consumers):
        consumer._forked()


os.register_at_fork(after_in_child=_after_fork)
