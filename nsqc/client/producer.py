"""Publishing to one of several nsqd: if one fails, the next one gets the message.

Delivery is at least once: what was sent but not acknowledged before a connection broke is sent again.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable
from typing import NamedTuple, Unpack

from nsqc.client.backoff import Backoff
from nsqc.client.commands import BATCH_BYTES, BATCH_ROWS, WINDOW, Body, Deferred, Many, Publication, Single
from nsqc.client.connection import Connection
from nsqc.client.errors import ClientError, ConnectError, Refused
from nsqc.client.failover import Failover, Tries
from nsqc.client.options import ConnectionOptions, Options

OWN = ("nsqd", "nsqlookupd", "retries", "backoff")
IDLE_SECONDS = 60.0     # a connection unused for this long is closed
_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


class Idle(NamedTuple):
    """An unused connection, and since when it is."""

    connection: Connection
    since: float


class Producer:
    """nsqd: addresses; the first that works is used. nsqlookupd: asked for addresses if none are given.

    retries: tries after the first, each with the next nsqd, after a pause that starts at backoff seconds and doubles
    with each round over all of them. All other options go to Connection. Connects with the first publish. Raises
    BadAddress, ValueError, TypeError.

    Thread-safe: each publish uses a connection exclusively, then leaves it to the next one. So there are as many
    connections as threads publish at the same time.
    """

    def __init__(self, nsqd: str | Iterable[str] = (), *, nsqlookupd: str | Iterable[str] = (), retries: int = 5,
                 backoff: float = 0.1, timeout: float = 10.0, **options: Unpack[ConnectionOptions]):
        self._options = Options("Producer", OWN, timeout, options)
        self._failover = Failover(nsqd, nsqlookupd, retries, Backoff(backoff))
        self._lock = threading.Lock()       # protects the two below; never held while waiting
        self._idle: list[Idle] = []         # most recently used last
        self._closings = 0                  # calls of close(): connections in use during one are not kept
        _producers.add(self)

    def publish(self, topic: str, body: Body) -> None:
        """Raises BadName, BadMessage, Refused, LookupFailed, PublishFailed."""
        self._attempt(Single(self._options, topic, body))

    def publish_many(self, topic: str, bodies: Iterable[Body], *, batch_bytes: int = BATCH_BYTES,
                     batch_rows: int = BATCH_ROWS, window: int = WINDOW) -> None:
        """bodies: any iterable, consumed before anything is sent. If a connection breaks halfway, everything is sent
        again. Raises as publish, and what the iterable raises."""
        many = Many(self._options, topic, bodies, batch_bytes, batch_rows, window)
        if many:
            self._attempt(many)

    def publish_deferred(self, topic: str, body: Body, delay_ms: int) -> None:
        """Delivered after delay_ms milliseconds. Raises as publish."""
        self._attempt(Deferred(self._options, topic, (body,), delay_ms))

    def publish_deferred_many(self, topic: str, bodies: Iterable[Body], delay_ms: int) -> None:
        """Raises as publish_many."""
        deferred = Deferred(self._options, topic, bodies, delay_ms)
        if deferred:
            self._attempt(deferred)

    def close(self) -> None:
        """Closes the connections, those in use by other threads when they are done. The next publish connects again."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._closings += 1
        for entry in idle:
            entry.connection.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ fail-over

    def _attempt(self, publication: Publication) -> None:
        tries = Tries(self._failover)
        while True:
            connection: Connection | None = None
            address = None
            closings = self._closings
            try:
                connection = self._take()
                if connection is None:
                    self._look_up()
                    address = self._failover.target()
                    connection = Connection.with_options(address, self._options)
                connection.publish_all(publication)
            except (ConnectError, Refused) as error:
                address = connection.address if connection is not None else address
                self._discard(connection)
                pause = tries.failed(error, address)
            except BaseException:
                # The command may be half sent, or its answer outstanding.
                self._discard(connection)
                raise
            else:
                self._put_back(connection, closings)
                return
            time.sleep(pause)

    def _look_up(self) -> None:
        if self._failover.nsqlookupd:
            self._failover.addresses = self._failover.look_up(self._options.timeout, self._options.tls)

    @staticmethod
    def _discard(connection: Connection | None) -> None:
        if connection is not None:
            connection.close()

    # ------------------------------------------------------------------ connections

    def _take(self) -> Connection | None:
        """An idle connection that works, its heartbeats answered. A dead one is dropped without counting as a try."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop().connection
            try:
                connection.ping()
                return connection
            except ClientError:
                connection.close()
            except BaseException:
                connection.close()
                raise

    def _put_back(self, connection: Connection, closings: int) -> None:
        now = time.monotonic()
        with self._lock:
            stale = [idle.connection for idle in self._idle if now - idle.since > IDLE_SECONDS]
            if stale:
                self._idle = [idle for idle in self._idle if now - idle.since <= IDLE_SECONDS]
            if closings == self._closings:
                self._idle.append(Idle(connection, now))
            else:
                stale.append(connection)
        for old in stale:
            old.close()

    def _forked(self) -> None:
        """In a forked child: the thread that held the lock does not exist, and the connections are the parent's."""
        self._lock = threading.Lock()
        self._idle = []


def _after_fork() -> None:
    for producer in list(_producers):
        producer._forked()


os.register_at_fork(after_in_child=_after_fork)
