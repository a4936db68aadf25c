"""The fleet at one moment, summed over nodes, and its changes since the previous moment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from nsqc.admin.ruling import dead_topic
from nsqc.wire.stats import ChannelStats, Latency, TopicStats, percentiles_of

P99 = 0.99
Buckets = dict[float, float]     # by bound, seconds: how many took at most that long


class ChannelRow(Struct, gc=False):
    """A channel over all nodes. Rates are a second; below 0: not known yet. Times are unix seconds; 0: unknown."""

    topic: str
    name: str
    depth: int = 0
    backend: int = 0
    in_flight: int = 0
    deferred: int = 0
    messages: int = 0
    requeues: int = 0
    timeouts: int = 0
    clients: int = 0
    nodes: int = 0
    paused: int = 0             # nodes on which it is paused
    latency_ns: float = -1.0    # 99th percentile, of the slowest node; 0: nothing was finished; below 0: not measured
    came: float = -1.0
    went: float = -1.0
    requeued: float = -1.0
    timed_out: float = -1.0
    oldest: float = 0.0         # when the oldest waiting message was published
    still_since: float = 0.0    # since when messages wait or are in flight, and none is finished
    alone_since: float = 0.0    # since when messages wait and there is no consumer
    rules: Mapping[str, object] | None = None   # delivery rules that differ from the defaults, of one of the nodes
    dead_topic: str = ""        # where its dead letters go
    dead_letters: int = 0       # how many went there

    @property
    def finished(self) -> int:
        """Finished messages."""
        return self.messages - self.depth - self.in_flight - self.deferred


class TopicRow(Struct):
    """A topic over all nodes, likewise. total_depth: with its channels."""

    name: str
    depth: int = 0
    backend: int = 0
    messages: int = 0
    bytes: int = 0
    nodes: int = 0
    paused: int = 0
    damaged: int = 0
    publish_ids: int = -1       # ids of publishes that are remembered; below 0: no rule says so
    deduplicated: int = 0       # publishes that were not stored again
    forgotten_ids: int = 0      # ids that were forgotten before their time
    latency_ns: float = -1.0
    came: float = -1.0
    channels: dict[str, ChannelRow] = {}
    total_depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    clients: int = 0
    went: float = -1.0
    oldest: float = 0.0
    unread_since: float = 0.0   # since when messages wait in the topic itself and it has no channel


class NodeRow(Struct, gc=False):
    """A node. error: why it does not answer; missing_since: since when."""

    address: str
    tcp: str = ""
    hostname: str = ""
    version: str = ""
    nsqc: str = ""              # nsqc's own version; empty: unknown, or NSQ's nsqd
    listed: bool = True         # a lookup server lists it, or the options name it
    error: str = ""
    missing_since: float = 0.0
    health: str = ""
    start_time: int = 0
    topics: int = 0
    channels: int = 0
    clients: int = 0
    depth: int = 0
    in_flight: int = 0
    messages: int = 0
    finished: int = 0
    came: float = -1.0
    went: float = -1.0
    answer_ms: float = 0.0
    answer_bytes: int = 0
    disk_free: float = -1.0     # bytes; below 0: unknown
    disk_size: float = -1.0
    disk_limit: float = 0.0
    memory: float = -1.0
    cpu_s: float = -1.0
    cpu: float = -1.0           # share of a processor
    draining: bool = False
    connections: float = -1.0
    gauges_at: float = 0.0      # when those from disk_free on were read
    times: Buckets = {}         # latencies of all channels since the node's start
    recent_times: Buckets = {}  # those since the reading before


class Totals(Struct, gc=False):
    """Over the fleet."""

    topics: int = 0
    channels: int = 0
    clients: int = 0
    depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    came: float = -1.0
    went: float = -1.0
    oldest: float = 0.0
    latency_ns: float = -1.0
    bucket_ns: float = -1.0     # upper bound of the same, by the histograms of nodes
    nodes: int = 0
    answering: int = 0


class Moment:
    """The fleet at one moment. Built by add(), which may be spread over loop iterations; then compare() with the moment
    before."""

    def __init__(self) -> None:
        self.at = time.time()
        self.topics: dict[str, TopicRow] = {}
        self.size = 0       # topics and channels
        self.nodes: dict[str, NodeRow] = {}
        self.totals = Totals()
        self.feeders: dict[str, list[ChannelRow]] = {}     # channels whose dead letters go to a topic, by that
        self.orders: dict[tuple[str, bool], list[TopicRow]] = {}     # sorted views, see nsqc.admin.listing

    def identity(self) -> frozenset[tuple[str, int]]:
        """Which processes have answered: counters of others begin at 0."""
        return frozenset((node.address, node.start_time) for node in self.nodes.values() if not node.error)

    def answering(self, nsqc: bool = False) -> list[str]:
        """The addresses of nodes that answer; nsqc: only of those that are nsqc's."""
        return [node.address for node in self.nodes.values() if not node.error and (node.nsqc or not nsqc)]

    # ------------------------------------------------------------------ building

    def add(self, topic: TopicStats, node: NodeRow) -> None:
        """A topic as a node has it."""
        row = self.topics.get(topic.topic_name)
        if row is None:
            row = self.topics[topic.topic_name] = TopicRow(topic.topic_name, channels={})
            self.size += 1
        row.depth += topic.depth
        row.backend += topic.backend_depth
        row.messages += topic.message_count
        row.bytes += topic.message_bytes
        row.nodes += 1
        row.paused += topic.paused
        row.latency_ns = max(row.latency_ns, p99_of(topic.e2e_processing_latency))
        if topic.log is not None:
            row.damaged += topic.log.damaged
        if topic.publish_ids is not None:
            row.publish_ids = max(row.publish_ids, 0) + topic.publish_ids
            row.deduplicated += topic.deduplicated or 0
            row.forgotten_ids += topic.forgotten_ids or 0
        node.topics += 1
        node.depth += topic.depth
        node.messages += topic.message_count
        for channel in topic.channels or ():
            self._add_channel(row, channel, node)

    def _add_channel(self, topic: TopicRow, channel: ChannelStats, node: NodeRow) -> None:
        row = topic.channels.get(channel.channel_name)
        if row is None:
            row = topic.channels[channel.channel_name] = ChannelRow(topic.name, channel.channel_name)
            self.size += 1
        row.depth += channel.depth
        row.backend += channel.backend_depth
        row.in_flight += channel.in_flight_count
        row.deferred += channel.deferred_count
        row.messages += channel.message_count
        row.requeues += channel.requeue_count
        row.timeouts += channel.timeout_count
        row.clients += channel.consumers
        row.nodes += 1
        row.paused += channel.paused
        row.latency_ns = max(row.latency_ns, p99_of(channel.e2e_processing_latency))
        row.dead_letters += channel.dead_letter_count
        if channel.rules:
            self._add_rules(row, channel.rules)
        node.channels += 1
        node.clients += channel.consumers
        node.depth += channel.depth
        node.in_flight += channel.in_flight_count
        node.finished += channel.message_count - channel.held

    def _add_rules(self, row: ChannelRow, rules: Mapping[str, object]) -> None:
        row.rules = rules
        dead = dead_topic(row.topic, rules)
        if dead and not row.dead_topic:
            row.dead_topic = dead
            self.feeders.setdefault(dead, []).append(row)

    # ------------------------------------------------------------------ comparing

    def compare(self, before: Moment | None) -> Iterator[None]:
        """Sums, rates, and since when things are as they are. Yields now and then."""
        seconds = 0.0 if before is None else self.at - before.at
        # With another set of processes the sums of counters mean something else: rates come with the next moment.
        known = before is not None and before.identity() == self.identity() and seconds > 0
        for number, row in enumerate(self.topics.values()):
            earlier = None if before is None else before.topics.get(row.name)
            if known:
                row.came = rate(row.messages, 0 if earlier is None else earlier.messages, seconds)
            self._sum_up(row, earlier, seconds if known else 0.0)
            if number % 64 == 63:
                yield
        for node in self.nodes.values():
            self._compare_node(node, None if before is None else before.nodes.get(node.address), seconds)
        self.sum_up()

    def _sum_up(self, row: TopicRow, earlier: TopicRow | None, seconds: float) -> None:
        row.total_depth = row.depth
        went = 0.0
        for channel in row.channels.values():
            past = None if earlier is None else earlier.channels.get(channel.name)
            self._compare_channel(channel, past, seconds)
            row.total_depth += channel.depth
            row.in_flight += channel.in_flight
            row.deferred += channel.deferred
            row.clients += channel.clients
            went += max(channel.went, 0.0)
            row.oldest = earliest(row.oldest, channel.oldest)
        if seconds:
            row.went = went
        if row.depth and not row.channels:
            row.unread_since = (earlier.unread_since if earlier is not None else 0.0) or self.at

    def _compare_channel(self, row: ChannelRow, past: ChannelRow | None, seconds: float) -> None:
        waits = bool(row.depth or row.in_flight)
        if past is not None and row.depth:
            row.oldest = past.oldest
        if seconds:
            row.came = rate(row.messages, 0 if past is None else past.messages, seconds)
            row.went = rate(row.finished, 0 if past is None else past.finished, seconds)
            row.requeued = rate(row.requeues, 0 if past is None else past.requeues, seconds)
            row.timed_out = rate(row.timeouts, 0 if past is None else past.timeouts, seconds)
        if waits and past is not None and (past.depth or past.in_flight) and past.finished == row.finished:
            row.still_since = past.still_since or self.at
        elif waits:
            row.still_since = self.at
        if row.depth and not row.clients:
            row.alone_since = (past.alone_since if past is not None else 0.0) or self.at

    def _compare_node(self, node: NodeRow, past: NodeRow | None, seconds: float) -> None:
        if past is None or node.error or past.error or past.start_time != node.start_time or seconds <= 0:
            return
        node.came = rate(node.messages, past.messages, seconds)
        node.went = rate(node.finished, past.finished, seconds)

    def sum_up(self) -> None:
        """Sums over all topics and nodes."""
        total = self.totals
        for row in self.topics.values():
            total.channels += len(row.channels)
            total.clients += row.clients
            total.depth += row.total_depth
            total.in_flight += row.in_flight
            total.deferred += row.deferred
            total.oldest = earliest(total.oldest, row.oldest)
            total.latency_ns = max(total.latency_ns, row.latency_ns)
            if row.came >= 0:
                total.came = max(total.came, 0.0) + row.came
            if row.went >= 0:
                total.went = max(total.went, 0.0) + row.went
        total.topics = len(self.topics)
        total.nodes = len(self.nodes)
        total.answering = sum(not node.error for node in self.nodes.values())


def rate(now: int, before: int, seconds: float) -> float:
    """Per second. A topic emptied or created again counts from 0: no rate is negative."""
    return max(now - before, 0) / seconds


def earliest(one: float, other: float) -> float:
    """The earlier of two times; 0 is none."""
    return min(one, other) if one and other else one or other


def p99_of(latency: Latency | None) -> float:
    """The 99th percentile, or the next higher one that is there; 0: nothing was finished; below 0: not measured."""
    found = [each for each in percentiles_of(latency) if each.get("quantile", 0.0) >= P99]
    return min(found, key=lambda each: each["quantile"]).get("value", 0.0) if found else -1.0


def channels_of(topics: Iterable[TopicRow]) -> Iterator[ChannelRow]:
    """All channels."""
    for topic in topics:
        yield from topic.channels.values()
