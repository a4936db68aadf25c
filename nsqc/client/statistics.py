"""Statistics of producers and consumers."""

from __future__ import annotations

from typing import NamedTuple


class PeerStats(NamedTuple):
    """A consumer's connection to an nsqd. error: why it is not connected. ready: its current RDY; in_flight: messages
    received over it and not answered."""

    address: str
    is_connected: bool
    error: str
    ready: int
    in_flight: int


class ConsumerStats(NamedTuple):
    """received: messages so far. waiting: those not yet returned by get()."""

    received: int
    waiting: int
    connections: list[PeerStats]


class ProducerStats(NamedTuple):
    """published: acknowledged messages. retries: attempts after a failed one. failed: calls that raised
    PublishFailed or Refused. connections: open ones, by nsqd. down: nsqd that failed last time, with the cause."""

    published: int
    retries: int
    failed: int
    connections: dict[str, int]
    down: dict[str, str]
