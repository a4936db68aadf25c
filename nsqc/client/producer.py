"""Publishes to one of several nsqd: if one fails, the next one gets the message.

Delivery is at least once: messages sent but not acknowledged before a connection broke are sent again.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Unpack

from nsqc.client.commands import BATCH_BYTES, BATCH_ROWS, WINDOW, Body, Deferred, Many, Publication, Single
from nsqc.client.connection import Connection
from nsqc.client.errors import ClientError, Closed, ConnectError, NoAnswer, Refused
from nsqc.client.handling import ProducerStats
from nsqc.client.options import ConnectionOptions, Options
from nsqc.client.peers import Backoff, Failover, Tries
from nsqc.client.sending import LINGER_SECONDS, MAX_PENDING_BYTES, Gathered, OnError, Outbox

if TYPE_CHECKING:
    from concurrent.futures import Future

    from nsqc.client.future import Sent

OWN = ("nsqd", "nsqlookupd", "retries", "backoff", "spread", "poll_interval", "linger", "max_pending_bytes", "on_error")
SENDER_SECONDS = 1.0    # the thread of send() ends after this time without messages
IDLE_SECONDS = 60.0     # a connection unused for this long is closed
_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


class Idle(NamedTuple):
    """An unused connection, and when it became idle."""

    connection: Connection
    since: float


class Producer:
    """nsqd: addresses; the first that works is used, or with spread=True round-robin. nsqlookupd: queried for addresses
    if none are given; with spread, again every poll_interval seconds.

    timeout: seconds for one call including all attempts, or between two acknowledgements within a batch. retries:
    attempts after the first, each with the next nsqd, after a pause that starts at backoff seconds and doubles with
    each round over all of them. All other options go to Connection. Connects with the first publish, or by connect().
    Raises BadAddress, ValueError, TypeError.

    Thread-safe: each publish uses a connection exclusively, then leaves it to the next one. So there are as many
    connections as threads publish at the same time.

    send() does not wait: messages of a topic linger for up to linger seconds, until a batch is full, and a background
    thread sends them. At most max_pending_bytes of memory wait for acknowledgement; then send() waits. on_error: called
    on that thread with topic, body and error of each message that could not be published; None: a line is logged.

    Each publication has an id, by which a topic with the rule dedupe stores it once though it is sent again; id: one of
    the application's own, so that its own retries count as the same, too. Of publications with several commands it has
    up to 48 characters, otherwise 64.
    """

    def __init__(self, nsqd: str | Iterable[str] = (), *, nsqlookupd: str | Iterable[str] = (), retries: int = 5,
                 backoff: float = 0.1, timeout: float = 10.0, spread: bool = False, poll_interval: float = 60.0,
                 linger: float = LINGER_SECONDS, max_pending_bytes: int = MAX_PENDING_BYTES,
                 on_error: OnError | None = None, **options: Unpack[ConnectionOptions]):
        self._options = Options("Producer", OWN, timeout, options, publishes=True)
        self._failover = Failover(nsqd, nsqlookupd, retries, Backoff(backoff), spread=spread,
                                  poll_interval=poll_interval)
        self._lock = threading.Lock()       # protects the following; never held while waiting
        self._idle: list[Idle] = []         # most recently used last
        self._open: Counter[str] = Counter()    # connections by nsqd, including those in use
        self._published = self._retries = self._failed = 0
        self._closed = False
        self._changed = threading.Condition()   # protects the following
        self._outbox: Outbox[Sent] = Outbox(self._options, linger, max_pending_bytes, on_error)
        self._sender: threading.Thread | None = None
        self._outcome = threading.Condition()   # of the futures
        self._new_future: Callable[[threading.Condition], Sent] = first_future
        _producers.add(self)

    # ------------------------------------------------------------------ publishing

    def publish(self, topic: str, body: Body, *, id: str | None = None) -> None:
        """Raises BadName, BadMessage, ValueError, Refused, LookupFailed, PublishFailed, Closed."""
        self._attempt(Single(self._options, topic, body, id))

    def publish_many(self, topic: str, bodies: Iterable[Body], *, batch_bytes: int = BATCH_BYTES,
                     batch_rows: int = BATCH_ROWS, window: int = WINDOW, id: str | None = None) -> None:
        """bodies: any iterable, consumed before anything is sent. If a connection breaks halfway, what was not
        acknowledged is sent again. Raises as publish, and what the iterable raises."""
        many = Many(self._options, topic, bodies, batch_bytes, batch_rows, window, id)
        if many:
            self._attempt(many)

    def publish_deferred(self, topic: str, body: Body, delay_ms: int, *, id: str | None = None) -> None:
        """Delivered after delay_ms milliseconds. Raises as publish."""
        self._attempt(Deferred(self._options, topic, (body,), delay_ms, id))

    def publish_deferred_many(self, topic: str, bodies: Iterable[Body], delay_ms: int, *,
                              id: str | None = None) -> None:
        """Raises as publish_many."""
        deferred = Deferred(self._options, topic, bodies, delay_ms, id)
        if deferred:
            self._attempt(deferred)

    # ------------------------------------------------------------------ sending

    def send(self, topic: str, body: Body) -> Future[None]:
        """Publishes in the background, together with other messages of the topic; the future gets None, or an error as
        of publish(). Waits while max_pending_bytes are unacknowledged. The messages of one thread keep their order,
        apart from retries. Raises BadName, BadMessage, Closed, PublishFailed after the timeout without room."""
        body = self._outbox.checked(topic, body)
        future = self._new_future(self._outcome)
        with self._changed:
            if not self._outbox.has_room(len(body)):
                # The background thread, in a callback, would wait for itself.
                timeout = 0.0 if self._is_sender() else self._options.timeout
                if not self._changed.wait_for(lambda: self._closed or self._outbox.has_room(len(body)), timeout):
                    raise self._outbox.full(timeout)
            if self._closed:
                raise Closed("the producer is closed")
            if self._sender is None:
                sender = threading.Thread(target=self._send, name="nsqc sender", daemon=True)
                sender.start()      # first: it may fail
                self._new_future, self._sender = type(future), sender
            if self._outbox.add(topic, body, future):
                self._changed.notify_all()
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all messages of earlier send() calls have an outcome; they do not linger. Raises NoAnswer after
        timeout seconds; RuntimeError in on_error and in a callback of a future, where it would wait for itself."""
        from concurrent.futures import wait

        if self._is_sender():
            raise RuntimeError("flush() in on_error, or in a callback of a future, would wait for itself")
        with self._changed:
            futures = self._outbox.futures()
            self._outbox.flushing += 1
            self._changed.notify_all()
        try:
            left = len(wait(futures, timeout).not_done)
        finally:
            with self._changed:
                self._outbox.flushing -= 1
        if left:
            raise NoAnswer(f"{left} of {len(futures)} messages have no outcome after {timeout:g} s")

    def _is_sender(self) -> bool:
        return threading.current_thread() is self._sender

    def _send(self) -> None:
        """The background thread; ends when there is nothing to send."""
        while True:
            with self._changed:
                self._outbox.done()
                self._changed.notify_all()
                while (seconds := self._outbox.due()) != 0:
                    if not self._changed.wait(SENDER_SECONDS if seconds is None else seconds) and seconds is None:
                        self._sender = None
                        return
                batch = self._outbox.take()
            self._deliver(batch)

    def _deliver(self, batch: Gathered[Sent]) -> None:
        try:
            self._attempt(batch)
        except Exception as error:
            for part in batch.parts(error):
                self._deliver(part)
            batch.settle(error, self._outbox.on_error)
        else:
            batch.futures[0].finish(self._outcome, batch.futures)

    # ------------------------------------------------------------------ the producer itself

    def connect(self) -> None:
        """Connects now, so that a mistake shows before the first publish. Raises as publish."""
        self._attempt(Publication(0))

    def ping(self) -> float:
        """Greets an nsqd over a new connection, for health checks; returns the seconds it took. Raises as publish."""
        began = time.monotonic()
        self._attempt(Publication(0), fresh=True)
        return time.monotonic() - began

    def stats(self) -> ProducerStats:
        """Counters, and the connections."""
        with self._lock:
            return ProducerStats(self._published, self._retries, self._failed, dict(+self._open),
                                 {address: down.reason for address, down in self._failover.down.items()},
                                 self._outbox.size)

    def close(self) -> None:
        """Sends the messages of send(), within the timeout; then closes the connections, those in use by other threads
        when they are done. Further calls raise Closed."""
        if self._outbox.size and not self._closed and not self._is_sender():
            with suppress(NoAnswer):
                self.flush(self._options.timeout)
        with self._changed:
            self._closed = True
            self._outbox.abandon()
            self._changed.notify_all()
        with self._lock:
            idle, self._idle = self._idle, []
            self._closed = True
        for entry in idle:
            self._discard(entry.connection)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ fail-over

    def _attempt(self, publication: Publication, fresh: bool = False) -> None:
        """Publishes; fresh: over a connection that is closed afterwards."""
        tries = Tries(self._failover, publication, self._options.timeout)
        while True:
            connection: Connection | None = None
            address = None
            if self._closed:
                raise Closed("the producer is closed")
            try:
                address = self._aim(tries)
                connection = (None if fresh else self._take(address)) or self._dial(address, tries)
                connection.publish_all(publication, tries.patience())
            except (ConnectError, Refused) as error:
                self._discard(connection)
                pause = self._failure(tries, error, address)
            except BaseException:
                # The command may be half sent, or its answer outstanding.
                self._discard(connection)
                raise
            else:
                self._failover.worked(address)
                self._put_back(connection, publication.total, keep=not fresh)
                return
            time.sleep(pause)

    def _failure(self, tries: Tries, error: ConnectError | Refused, address: str | None) -> float:
        """The pause before the next attempt. Raises PublishFailed, Refused."""
        try:
            pause = tries.failed(error, address)
        except ClientError:
            with self._lock:
                self._failed += 1
                self._published += tries.publication.acknowledged
            raise
        with self._lock:
            self._retries += 1
        return pause

    def _aim(self, tries: Tries) -> str:
        """The nsqd for the next attempt; queries nsqlookupd if a connection is needed. Raises LookupFailed,
        ConnectError."""
        failover = self._failover
        if failover.nsqlookupd and not (failover.addresses and (failover.spread or self._idle)):
            failover.addresses = failover.look_up(tries.patience(), self._options.tls, self._options.auth_secret)
        elif failover.look_up_due():
            threading.Thread(target=self._look_up_again, name="nsqc lookup", daemon=True).start()
        return failover.target()

    def _look_up_again(self) -> None:
        self._failover.addresses = self._failover.look_up(self._options.timeout, self._options.tls,
                                                          self._options.auth_secret)

    # ------------------------------------------------------------------ connections

    def _dial(self, address: str, tries: Tries) -> Connection:
        connection = Connection.with_options(address, self._options, tries.patience())
        with self._lock:
            self._open[address] += 1
        return connection

    def _discard(self, connection: Connection | None) -> None:
        if connection is not None:
            with self._lock:
                self._open[connection.address] -= 1
            connection.close()

    def _take(self, address: str) -> Connection | None:
        """A working idle connection, its heartbeats answered. Dropping a dead one does not count as a try."""
        while True:
            with self._lock:
                at = len(self._idle) - 1
                while at >= 0 and self._idle[at].connection.address != address:
                    at -= 1
                if at < 0:
                    return None
                connection = self._idle.pop(at).connection
            try:
                connection.ping()
                return connection
            except ClientError:
                self._discard(connection)
            except BaseException:
                self._discard(connection)
                raise

    def _put_back(self, connection: Connection, published: int, keep: bool) -> None:
        now = time.monotonic()
        with self._lock:
            self._published += published
            stale = [idle.connection for idle in self._idle if now - idle.since > IDLE_SECONDS]
            if stale:
                self._idle = [idle for idle in self._idle if now - idle.since <= IDLE_SECONDS]
            if keep and not self._closed:
                self._idle.append(Idle(connection, now))
            else:
                stale.append(connection)
        for old in stale:
            self._discard(old)

    def _forked(self) -> None:
        """In a forked child: the thread that held the lock does not exist, and the connections are the parent's."""
        self._lock = threading.Lock()
        self._idle = []
        self._open.clear()
        lost = self._outbox.futures()
        self._changed, self._sender, self._outbox = threading.Condition(), None, self._outbox.copy()
        # In place: all futures have it, also those that are done.
        self._outcome._at_fork_reinit()  # type: ignore[attr-defined]    # typeshed lacks it
        for future in lost:
            future.forked()


def first_future(condition: threading.Condition) -> Sent:
    """A future of send(), whose module is slow to import."""
    from nsqc.client.future import Sent

    return Sent(condition)


def _after_fork() -> None:
    for producer in list(_producers):
        producer._forked()


def _at_exit() -> None:
    """Sends what a program that ends has not waited for: the background thread ends with it."""
    for producer in list(_producers):
        if producer._outbox.size:
            producer.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
