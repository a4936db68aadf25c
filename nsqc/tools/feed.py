"""A tool's input: topics of several nsqd as batches, without an object per message.

One thread owns all connections; dialling and lookups, which block, run on others. Messages in flight are limited by
number and by size, so a slow or blocked reader costs a bounded amount of memory; meanwhile heartbeats are answered and
messages touched, so nsqd keeps both the connection and the messages.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from nsqc.client.commands import Batch, Ids
from nsqc.client.connection import Connection, Dialer, subscribed
from nsqc.client.core import TOUCHES
from nsqc.client.errors import ClientError, ConnectError
from nsqc.client.frames import touch
from nsqc.client.lookup import lookup
from nsqc.client.options import MIB, Options
from nsqc.client.peers import Backoff, Peer, Peers
from nsqc.process.machine import raise_limit
from nsqc.tools.cluster import connect
from nsqc.tools.declare import NoNode, ToolError
from nsqc.tools.lines import keep_memory
from nsqc.tools.running import Stop

if TYPE_CHECKING:
    from nsqc.tools.cluster import Cluster

TICK_SECONDS = 0.25
BACKOFF = Backoff(0.1, 15.0)
BYTES_IN_FLIGHT = 64 * MIB      # of bodies, estimated by their average size
FIRST_IN_FLIGHT = 64            # before any size is known
SAME_SECONDS = 5.0              # a line is not repeated within this time
AT_ONCE = 16                    # concurrent dials and lookups

log = logging.getLogger("nsqc.client")


class Delivery:
    """Unanswered messages of a batch: all, or those of one part. ids: 16 bytes each; touched: when their timeout
    started."""

    __slots__ = ("batch", "count", "ids", "source", "touched")

    def __init__(self, batch: Batch, source: Source, ids: Ids, count: int, touched: float):
        self.batch, self.source, self.ids, self.count, self.touched = batch, source, ids, count, touched

    @property
    def topic(self) -> str:
        """The topic of the batch."""
        return self.source.topic


class Source:
    """A connection to one nsqd for one topic, and its unanswered deliveries."""

    def __init__(self, topic: str, peer: Peer[Connection], connection: Connection):
        self.topic, self.peer, self.connection = topic, peer, connection
        self.held: dict[Delivery, None] = {}
        self.touch_after = connection.msg_timeout / TOUCHES


class Feed:
    """Consumes topics of a cluster through one channel. max_in_flight: per topic, over all its nsqd. warn gets a line
    about each nsqd that is lost or found again. insists: it is an error if no nsqlookupd answers at the start."""

    def __init__(self, cluster: Cluster, topics: Iterable[str], channel: str, max_in_flight: int, options: Options,
                 stop: Stop, warn: Callable[[str], None], connections: int = 1, insists: bool = True):
        self.channel, self.max_in_flight = channel, max_in_flight
        self.delivered = self.bytes = 0         # messages and bytes of bodies so far
        self.late = 0                           # messages answered too late: nsqd delivers them again
        self._cluster, self._options, self._stop, self._warn = cluster, options, stop, warn
        self._connections, self._insists = connections, insists
        self._lookup_tls, self._secret = cluster.lookup_tls, cluster.secret()
        self._peers: dict[str, Peers[Connection]] = {}
        self._sources: dict[int, Source] = {}   # by descriptor
        self._dials: Dialer[tuple[str, Peer[Connection]], Connection] = Dialer(stop.wake, AT_ONCE)
        self._lookups: Dialer[str, list[str]] = Dialer(stop.wake, AT_ONCE)
        self._limit = min(max_in_flight, FIRST_IN_FLIGHT)
        self._cap: int | None = None            # set by limit()
        self._sized = False
        self._next_tick = 0.0
        self._poll = select.poll()
        self._poll.register(stop, select.POLLIN)
        self._fatal: Exception | None = None
        self._closed = False
        self._early: list[str] | None = []      # lines about nsqd, until one answers
        self._said: dict[str, float] = {}       # lines of the last seconds, with their time
        self._handler = Lines(self._say)
        log.addHandler(self._handler)
        log.propagate = False
        keep_memory()
        raise_limit()       # of open files: many topics on many nodes need as many connections
        for topic in topics:
            self.add(topic)

    def add(self, topic: str) -> None:
        """Adds a topic. Raises BadName, BadAddress."""
        if topic not in self._peers:
            self._peers[topic] = Peers(topic, self.channel, self._cluster.nsqd, self._cluster.nsqlookupd,
                                       max(self._limit, 1), self._connections, self._cluster.poll_interval, BACKOFF)
            self._next_tick = 0.0

    @property
    def topics(self) -> list[str]:
        """All topics."""
        return list(self._peers)

    # ------------------------------------------------------------------ starting

    def start(self) -> None:
        """Connects; returns when one nsqd is connected, or none is known yet. Raises NoNode if all known ones fail,
        Refused."""
        while not self._sources and not self._stop:
            self._tend(time.monotonic())
            failed = [peer.error for peers in self._peers.values() for peer in peers.all if peer.failures]
            if self._all_tried() and not self._sources:
                if failed:
                    raise NoNode(f"no nsqd answers: {'; '.join(dict.fromkeys(failed))}")
                break           # nsqlookupd knows no nsqd yet: one may register later
            self._wait(TICK_SECONDS)
            self._take_results()
        early, self._early = self._early, None
        for text in early or ():
            self._warn(text)

    def _say(self, text: str) -> None:
        # Several connections to one nsqd report the same.
        now = time.monotonic()
        if now - self._said.get(text, -SAME_SECONDS) < SAME_SECONDS:
            return
        self._said = {said: then for said, then in self._said.items() if now - then < SAME_SECONDS} | {text: now}
        if self._early is None:
            self._warn(text)
        else:
            self._early.append(text)

    def _all_tried(self) -> bool:
        return not self._dials.is_busy and not self._lookups.is_busy and all(
            peers.all_tried for peers in self._peers.values())

    @property
    def connected(self) -> int:
        """Number of connected sources."""
        return len(self._sources)

    # ------------------------------------------------------------------ receiving

    def watch(self, descriptor: int, events: int) -> None:
        """Makes receive() also return when this descriptor is ready; events: 0 removes it."""
        if events:
            self._poll.register(descriptor, events)
        else:
            self._poll.unregister(descriptor)

    def receive(self, seconds: float) -> list[Delivery]:
        """Returns arrived deliveries; none after this many seconds, when a watched descriptor is ready or the Stop is
        woken. Raises Refused, NoNode."""
        now = time.monotonic()
        if now >= self._next_tick:
            self._tend(now)
        readable = self._wait(0 if any(source.connection.pending for source in self._sources.values())
                              else min(seconds, max(self._next_tick - now, 0.001)))
        self._take_results()
        return self._read(readable)

    def _wait(self, seconds: float) -> list[int]:
        ready = self._poll.poll(seconds * 1000)
        readable = [descriptor for descriptor, _ in ready if descriptor in self._sources]
        if len(readable) < len(ready):
            self._stop.calm()
        return readable or [descriptor for descriptor, source in self._sources.items() if source.connection.pending]

    def _read(self, descriptors: list[int]) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for descriptor in descriptors:
            source = self._sources[descriptor]
            try:
                source.connection.pull()
            except ConnectError as error:
                self._lost(source, error)
                continue
            if source.connection.inflow.rows:
                size = source.connection.inflow.bytes
                batch = Batch(source.connection.inflow.columns(), source.connection)
                delivery = Delivery(batch, source, batch.ids, batch.count, time.monotonic())
                source.held[delivery] = None
                source.peer.received(time.monotonic())
                self._learn(batch.count, size)
                deliveries.append(delivery)
            if source.connection.failed_ids:
                self.late += len(source.connection.failed_ids)
                source.connection.failed_ids.clear()
            if source.connection.unsent:
                self._poll.modify(descriptor, select.POLLIN | select.POLLOUT)
        return deliveries

    def _learn(self, count: int, size: int) -> None:
        """Adapts the limit of messages in flight to the sizes seen so far."""
        self.delivered += count
        self.bytes += size
        recent = max(size / count, self.bytes / self.delivered)
        limit = max(1, min(self.max_in_flight, int(BYTES_IN_FLIGHT / max(recent, 1.0))))
        if not self._sized or limit < self._limit / 2 or limit > self._limit * 2:
            self._sized, self._limit = True, limit
            self._share()

    # ------------------------------------------------------------------ answering

    def finish(self, delivery: Delivery) -> None:
        """FIN for a whole delivery. If its connection is lost, nsqd delivers the messages again."""
        self._answered(delivery, lambda: delivery.source.connection.finish_ids(delivery.ids))

    def requeue(self, delivery: Delivery, delay_ms: int = 0) -> None:
        """REQ for a whole delivery."""
        self._answered(delivery, lambda: delivery.source.connection.requeue_ids(delivery.ids, delay_ms))

    def parts(self, delivery: Delivery, pieces: Iterable[bytes]) -> list[Delivery]:
        """Splits a delivery into parts answered one by one; pieces: the ids of each, all ids in all."""
        source = delivery.source
        is_live = source.held.pop(delivery, 0) is None
        found = [Delivery(delivery.batch, source, ids, len(ids) // 16, delivery.touched) for ids in pieces if ids]
        if is_live:
            source.held.update(dict.fromkeys(found))
        return found

    def split(self, delivery: Delivery, row: int) -> list[Delivery]:
        """Splits the messages before a row from the others."""
        ids = bytes(delivery.ids)
        return self.parts(delivery, (ids[:row * 16], ids[row * 16:]))

    def _answered(self, delivery: Delivery, send: Callable[[], None]) -> None:
        source = delivery.source
        if source.held.pop(delivery, 0) == 0:
            return      # its connection is lost
        try:
            send()
        except ConnectError as error:
            self._lost(source, error)

    @property
    def held(self) -> int:
        """Messages delivered and not answered."""
        return sum(delivery.count for source in self._sources.values() for delivery in source.held)

    def is_live(self, delivery: Delivery) -> bool:
        """Whether its connection is still up: otherwise nsqd delivers its messages again in any case."""
        return delivery in delivery.source.held

    def limit(self, most: int | None) -> None:
        """Limits the messages in flight until further notice: 0 for none; None: no limit besides the options."""
        if most != self._cap:
            self._cap = most
            self._share()

    @property
    def in_flight(self) -> int:
        """The current limit of messages in flight, per topic."""
        return self._limit if self._cap is None else min(self._limit, self._cap)

    def _share(self) -> None:
        now = time.monotonic()
        for peers in self._peers.values():
            peers.max_in_flight = self.in_flight
            for peer, connection, ready in peers.shares(now):
                try:
                    connection.ready(ready)
                    peer.ready = ready
                except ConnectError as error:
                    self._lost(self._sources[connection.fileno()], error)

    # ------------------------------------------------------------------ connections

    def _tend(self, now: float) -> None:
        """Dials, looks up, distributes RDY, touches, sends buffered data."""
        if self._fatal is not None:
            raise self._fatal
        self._next_tick = now + TICK_SECONDS
        for topic, peers in self._peers.items():
            if peers.look_up_due(now) and self._lookups.start(topic, partial(
                    lookup, topic, peers.nsqlookupd, self._cluster.lookup_timeout, self._lookup_tls, self._secret)):
                peers.asked(now)
            for peer in peers.due(now):
                self._dials.start((topic, peer), partial(self._subscribed, topic, peer.address))
        self._share()
        for descriptor, source in list(self._sources.items()):
            try:
                if source.connection.flush():
                    self._poll.modify(descriptor, select.POLLIN)
                self._touch(source, now)
            except ConnectError as error:
                self._lost(source, error)

    def _touch(self, source: Source, now: float) -> None:
        """Restarts the timeouts of messages still being processed. Raises ConnectError."""
        for delivery in source.held:
            if now - delivery.touched > source.touch_after:
                delivery.touched = now
                source.connection.post(touch(delivery.ids))

    def _subscribed(self, topic: str, address: str) -> Connection:
        """A consuming connection. Runs on a thread."""
        return subscribed(connect(address, self._options), topic, self.channel)

    def _take_results(self) -> None:
        """Processes the lookups and dials that have ended. Raises Refused, NoNode."""
        for topic, found in self._lookups.finished():
            if isinstance(found, list):
                self._peers[topic].found(found)
                self._next_tick = 0.0
            elif not self._sources and self._insists:
                self._fatal = NoNode(str(found))
            else:
                self._say(f"{found}; retrying later")
        for (topic, peer), outcome in self._dials.finished():
            if isinstance(outcome, Connection):
                self._connected(topic, peer, outcome)
            elif isinstance(outcome, ConnectError):
                self._peers[topic].failed(peer, outcome, time.monotonic())
            else:
                self._fatal = outcome
        if self._fatal is not None:
            raise self._fatal

    def _connected(self, topic: str, peer: Peer[Connection], connection: Connection) -> None:
        if peer not in self._peers[topic].all:      # nsqlookupd no longer lists it
            connection.close()
            return
        peer.connected(connection)
        self._sources[connection.fileno()] = Source(topic, peer, connection)
        self._poll.register(connection, select.POLLIN)
        self._next_tick = 0.0

    def _lost(self, source: Source, error: ConnectError) -> None:
        """Drops a connection: nsqd delivers its unanswered messages again."""
        for descriptor, other in list(self._sources.items()):
            if other is source:
                del self._sources[descriptor]
                self._poll.unregister(descriptor)
        source.connection.close()
        source.held.clear()
        self._peers[source.topic].failed(source.peer, error, time.monotonic())

    # ------------------------------------------------------------------ closing

    def close(self) -> None:
        """Requeues unanswered messages, waits until nsqd has read all answers, and closes."""
        if self._closed:
            return
        self._closed = True
        leaving = []
        for source in self._sources.values():
            connection = source.connection
            try:
                for delivery in source.held:
                    connection.requeue_ids(delivery.ids)
            except ClientError:
                pass    # nsqd delivers them again anyway
            leaving.append(threading.Thread(target=connection.leave, daemon=True))
        for thread in leaving:
            thread.start()
        for thread in leaving:
            thread.join()
        self._sources.clear()
        self._dials.close()
        log.removeHandler(self._handler)

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Lines(logging.Handler):
    """The client's log lines, as lines for the user."""

    def __init__(self, warn: Callable[[str], None]):
        super().__init__(logging.WARNING)
        self._warn = warn

    def emit(self, record: logging.LogRecord) -> None:
        """One log line."""
        self._warn(record.getMessage())


def check_topics(cluster: Cluster, topics: Iterable[str]) -> None:
    """Raises NoName if a topic does not exist. Skips an nsqd whose HTTP address does not work; NoNode if no
    nsqlookupd answers. With a token it asks nsqlookupd only: a consumer may not see the statistics of nsqd, and each
    refusal would be in the audit log."""
    if not cluster.nsqlookupd and cluster.secret():
        return
    for topic in topics:
        try:
            cluster.require_topic(topic)
        except NoNode:
            if cluster.nsqlookupd:
                raise
        except ToolError as error:
            if error.code != 4:
                continue
            raise
