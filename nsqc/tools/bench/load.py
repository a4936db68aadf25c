"""Publishes and consumes as fast as the node allows, over several connections, in one thread."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from nsqc.client.connection import Connection
from nsqc.client.encode import batch, pub
from nsqc.client.options import ConnectionOptions, Options
from nsqc.tools.errors import NoNode
from nsqc.tools.probing import connect

SAMPLE_S = 0.1          # interval for counting rates over time
MOST_TIMES = 200_000    # of single commands that are stored


class Load(NamedTuple):
    """The load and its node. size: of a body; batch: messages in an MPUB."""

    address: str
    options: ConnectionOptions
    timeout: float
    topic: str
    channel: str
    size: int
    batch: int
    connections: int
    ready: int
    window: int
    seconds: float

    def connect(self) -> Connection:
        """One connection. Raises ClientError."""
        return connect(self.address, Options("bench", (), self.timeout, self.options))

    @contextmanager
    def connected(self, count: int) -> Iterator[list[Connection]]:
        """Opens this many connections. After a failure they are closed at once: a graceful close with a hanging node
        takes long. Raises ClientError."""
        connections: list[Connection] = []
        try:
            connections += (self.connect() for _ in range(count))
            yield connections
        except BaseException:
            for connection in connections:
                connection.close()
            raise
        for connection in connections:
            connection.leave()


class Result(NamedTuple):
    """A result. times: of commands, or of messages, in seconds, sorted; samples: messages in each SAMPLE_S."""

    name: str
    size: int
    messages: int
    seconds: float
    times: list[float]
    samples: list[int]
    note: str = ""

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds else 0.0

    def at(self, share: float) -> float:
        """A percentile of times, in seconds."""
        return self.times[min(int(len(self.times) * share), len(self.times) - 1)] if self.times else 0.0

    def as_dict(self) -> dict[str, object]:
        """For --json; times in microseconds."""
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
        return {"what": self.name, "messages": self.messages, "seconds": round(self.seconds, 6),
                "rate": round(self.rate, 1), "bytes_per_second": round(self.rate * self.size),
                "times_us": {name: round(self.at(share) * 1e6, 1) for name, share in shares.items()},
                "samples": self.samples, "note": self.note}


class Samples:
    """Counts messages by intervals."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.total = 0
        self.counts: list[int] = []

    def add(self, count: int, now: float) -> None:
        """Adds messages."""
        at = int((now - self.began) / SAMPLE_S)
        while len(self.counts) <= at:
            self.counts.append(0)
        self.counts[at] += count
        self.total += count


def publish(load: Load) -> Result:
    """Publishes for a while; a command's time is from sending it to its OK. Raises ClientError, NoNode."""
    body = bytes(load.size)
    topic = load.topic.encode()
    command = pub(topic, body)
    if load.batch > 1:
        command = batch(b"MPUB %b\n" % topic, (body,) * load.batch, 0, load.batch, 1 << 30)[0]
    times: list[float] = []
    with load.connected(load.connections) as connections:
        sent: dict[int, deque[float]] = {connection.fileno(): deque() for connection in connections}
        by_descriptor = {connection.fileno(): connection for connection in connections}
        poll = select.poll()
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        samples = Samples()
        end = samples.began + load.seconds
        for descriptor, connection in by_descriptor.items():
            for _ in range(load.window):
                sent[descriptor].append(time.monotonic())
                connection.enqueue(command)
        while any(sent.values()):
            for descriptor in [d for d, c in by_descriptor.items() if c.unsent]:
                poll.modify(descriptor, select.POLLIN | select.POLLOUT)
            ready = poll.poll(load.timeout * 1000)
            if not ready:
                raise NoNode(f"{load.address}: no answer within {load.timeout:g} s")
            for descriptor, _ in ready:
                connection, waiting = by_descriptor[descriptor], sent[descriptor]
                connection.flush()
                if not connection.unsent:
                    poll.modify(descriptor, select.POLLIN)
                answered = connection.answered()
                now = time.monotonic()
                samples.add(answered * load.batch, now)
                for _ in range(answered):
                    keep(times, now - waiting.popleft())
                    if now < end:
                        waiting.append(now)
                        connection.enqueue(command)
        seconds = time.monotonic() - samples.began
    return Result("publish", load.size, samples.total, seconds, sorted(times), samples.counts)


def consume(load: Load) -> Result:
    """Consumes the messages waiting in the channel, for a while; the time is from one batch to the next of a
    connection. Raises ClientError."""
    times: list[float] = []
    note = ""
    with load.connected(load.connections) as connections:
        by_descriptor = {connection.fileno(): connection for connection in connections}
        poll = select.poll()
        for descriptor, connection in by_descriptor.items():
            connection.subscribe(load.topic, load.channel)
            poll.register(descriptor, select.POLLIN)
        samples = Samples()
        end, last = samples.began + load.seconds, samples.began
        before = dict.fromkeys(by_descriptor, samples.began)
        for connection in connections:
            connection.ready(min(load.ready, connection.max_ready))
        while (now := time.monotonic()) < end:
            ready = poll.poll(200)
            if not ready:
                note = "all waiting messages"
                break
            for descriptor, _ in ready:
                connection = by_descriptor[descriptor]
                connection.pull()
                count = connection.inflow.rows
                if not count:
                    continue
                connection.finish_ids(connection.inflow.columns()[5])
                now = last = time.monotonic()
                samples.add(count, now)
                keep(times, now - before[descriptor])
                before[descriptor] = now
        for connection in connections:
            connection.ready(0)
    return Result("consume", load.size, samples.total, max(last - samples.began, 1e-9), sorted(times), samples.counts,
                  note)


def keep(times: list[float], seconds: float) -> None:
    """Stores a time, up to a limit."""
    if len(times) < MOST_TIMES:
        times.append(seconds)
