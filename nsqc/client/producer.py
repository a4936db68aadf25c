"""Publishing to one of several nsqd: where one fails, the next one gets the message.

At least once: what was sent and not acknowledged before a connection broke is sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from nsqc.client.connection import Connection
from nsqc.client.errors import ClientError, ConnectError, Refused
from nsqc.client.lookup import nodes

# The nsqd is well, but cannot store now: another one may.
ELSEWHERE = ("E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED")
LONGEST_PAUSE = 30.0


class PublishFailed(ClientError):
    """All tries at all nsqd have failed; the text names the last cause."""


class Producer:
    """nsqd: addresses, of which the first that works is used. nsqlookupd: asked for addresses where none are given.

    retries: tries after the first, each with the next nsqd, after a pause that begins with backoff seconds and doubles
    with each round over all of them. Everything else goes to Connection. Connects with the first publish.
    """

    def __init__(self, nsqd: Sequence[str] = (), *, nsqlookupd: Sequence[str] = (), retries: int = 5,
                 backoff: float = 0.1, timeout: float = 10.0, **connection: Any):
        if bool(nsqd) == bool(nsqlookupd):
            raise ValueError("give either nsqd or nsqlookupd")
        self._addresses = [nsqd] if isinstance(nsqd, str) else list(nsqd)
        self._nsqlookupd = [nsqlookupd] if isinstance(nsqlookupd, str) else list(nsqlookupd)
        self._retries, self._backoff, self._timeout, self._options = retries, backoff, timeout, connection
        self._connection: Connection | None = None
        self._turn = 0

    def publish(self, topic: str, body: bytes) -> None:
        """Raises BadName, BadMessage, Refused, PublishFailed."""
        self._attempt(lambda one: one.publish(topic, body))

    def publish_many(self, topic: str, bodies: Sequence[bytes], **batches: Any) -> None:
        """Everything is sent again where a connection breaks in the middle. Raises as publish."""
        self._attempt(lambda one: one.publish_many(topic, bodies, **batches))

    def publish_deferred(self, topic: str, body: bytes, delay_ms: int) -> None:
        """To be delivered after delay_ms milliseconds. Raises as publish."""
        self._attempt(lambda one: one.publish_deferred(topic, body, delay_ms))

    def publish_deferred_many(self, topic: str, bodies: Sequence[bytes], delay_ms: int) -> None:
        """Raises as publish_many."""
        self._attempt(lambda one: one.publish_deferred_many(topic, bodies, delay_ms))

    def close(self) -> None:
        """Closes the connection; the next publish makes another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ fail-over

    def _attempt(self, work: Callable[[Connection], None]) -> None:
        cause: Exception | None = None
        for number in range(self._retries + 1):
            if number:
                time.sleep(self._pause(number))
            try:
                work(self._connected())
                return
            except ConnectError as error:
                cause = error
            except Refused as error:
                self._drop()
                if error.code not in ELSEWHERE:
                    raise
                cause = error
            self._drop()
        raise PublishFailed(f"given up after {self._retries + 1} tries: {cause}") from cause

    def _pause(self, number: int) -> float:
        """None before every nsqd had its turn."""
        rounds = number // max(len(self._addresses), 1)
        return min(self._backoff * 2 ** (rounds - 1), LONGEST_PAUSE) if rounds else 0.0

    def _connected(self) -> Connection:
        if self._connection is not None:
            # Heartbeats that came meanwhile are answered, and a connection that has ended is noticed.
            self._connection.ping()
            return self._connection
        if self._nsqlookupd:
            self._addresses = nodes(self._nsqlookupd, self._timeout) or self._addresses
        if not self._addresses:
            raise ConnectError(f"nsqlookupd {', '.join(self._nsqlookupd)}: no nsqd is known")
        address = self._addresses[self._turn % len(self._addresses)]
        self._connection = Connection(address, timeout=self._timeout, **self._options)
        return self._connection

    def _drop(self) -> None:
        self.close()
        self._turn += 1
