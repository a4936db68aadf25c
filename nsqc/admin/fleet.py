"""Which nodes there are, and questions to many of them at once: an error of one never hides the answers of others."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from nsqc.admin import upstream
from nsqc.admin.upstream import (
    LONGEST,
    LOOKUP_NODES,
    LOOKUP_TOPICS,
    Ask,
    Info,
    Pace,
    Producer,
    ProducerList,
    Trust,
    UpstreamError,
    checked,
    dead_topic,
    target,
)
from nsqc.log import Log
from nsqc.peers.http import Answer
from nsqc.wire import stats as nsqstats
from nsqc.wire.outside import JSONError
from nsqc.wire.stats import ChannelStats, Latency, Names, RawStats, Stats, TopicStats, percentiles_of

# ====================================================================== model
# The fleet at one moment, summed over nodes, and its changes since the previous moment.

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
    stale: int = 0              # nodes that do not answer: their last known values count
    stale_depth: int = 0        # of depth, what is theirs: no consumer could take it now
    stale_in_flight: int = 0
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
    stale: int = 0
    stale_depth: int = 0
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
    seen_at: float = 0.0        # when it gave its numbers, if it does not answer now
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
    answer_ms: float = -1.0     # below 0: unknown, or it does not answer
    answer_bytes: int = 0
    disk_free: float = -1.0     # bytes; below 0: unknown
    disk_size: float = -1.0
    disk_limit: float = 0.0
    memory: float = -1.0
    cpu_s: float = -1.0
    cpu: float = -1.0           # share of a processor
    draining: bool = False
    connections: float = -1.0
    rules_digest: float = -1.0
    drift: str = ""             # why its rules are not as they should be
    bucket: dict[str, float] = {}   # its metrics of a bucket, without nsqc_bucket_; empty: it has none
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
        self.rules_fault = ""   # why the file of --rules cannot be read
        self.feeders: dict[str, list[ChannelRow]] = {}     # channels whose dead letters go to a topic, by that
        self.orders: dict[tuple[str, bool], list[TopicRow]] = {}     # sorted views, see nsqc.admin.view

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
        if node.error:
            row.stale += 1
            row.stale_depth += topic.depth
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
        row.nodes += 1
        if node.error:      # its consumers are gone
            row.stale += 1
            row.stale_depth += channel.depth
            row.stale_in_flight += channel.in_flight_count
        else:
            row.clients += channel.consumers
        row.paused += channel.paused
        row.latency_ns = max(row.latency_ns, p99_of(channel.e2e_processing_latency))
        row.dead_letters += channel.dead_letter_count
        if channel.rules:
            self._add_rules(row, channel.rules)
        node.channels += 1
        node.clients += 0 if node.error else channel.consumers
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
        if row.depth > row.stale_depth and not row.channels:
            row.unread_since = (earlier.unread_since if earlier is not None else 0.0) or self.at

    def _compare_channel(self, row: ChannelRow, past: ChannelRow | None, seconds: float) -> None:
        waits = row.depth > row.stale_depth or row.in_flight > row.stale_in_flight
        if past is not None and row.depth:
            row.oldest = past.oldest
        if seconds:
            row.came = rate(row.messages, 0 if past is None else past.messages, seconds)
            row.went = rate(row.finished, 0 if past is None else past.finished, seconds)
            row.requeued = rate(row.requeues, 0 if past is None else past.requeues, seconds)
            row.timed_out = rate(row.timeouts, 0 if past is None else past.timeouts, seconds)
        runs = row.paused < row.nodes       # a pause is on purpose: the time of consumers begins with its end
        if (waits and runs and past is not None and (past.depth or past.in_flight)
                and past.finished == row.finished):
            row.still_since = past.still_since or self.at
        elif waits:
            row.still_since = self.at
        if row.depth > row.stale_depth and not row.clients:
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


# ====================================================================== fleet

LOOKUPD, NSQD = "nsqlookupd", "nsqd"
T = TypeVar("T")
AskNode = Callable[[str, Ask], Awaitable[Answer]]     # by address; any answer. Raises UpstreamError if there is none
LONG_BODY = 1024 * 1024     # bytes
_NUMBERS = re.compile(r"\d+")


class AllFailed(Exception):
    """None of the servers that were asked has answered."""

    def __init__(self, kind: str, errors: Iterable[object]) -> None:
        super().__init__(f"failed to query any {kind}: " + "\n".join(map(str, errors)))


class Found(NamedTuple, Generic[T]):
    """The answers of servers, by address, and the errors of the others, by address."""

    answers: dict[str, T]
    errors: dict[str, UpstreamError]

    def usable(self, kind: str) -> Found[T]:
        """Itself. Raises AllFailed if no server has answered."""
        if not self.answers:
            raise AllFailed(kind, self.errors.values())
        return self

    def warning(self) -> str:
        """For a result that lacks something; empty if it lacks nothing."""
        return warning(self.errors.values())


class Known(NamedTuple):
    """A node. remote_addresses: LOOKUPD/REMOTE for each lookup server that lists it; topics: with their tombstones, of
    any of those; None: nsqlookupd is not asked."""

    producer: Producer
    remote_addresses: list[str] | None
    topics: dict[str, bool]

    @property
    def address(self) -> str:
        """Of its HTTP API."""
        return self.producer.http


def warning(errors: Iterable[object]) -> str:
    """nsqadmin's words for errors beside a usable answer."""
    text = "\n".join(map(str, errors))
    return f"WARNING: {text}" if text else ""


class Fleet:
    """The nodes that the options name."""

    def __init__(self, ask: AskNode, log: Log, lookupds: Sequence[str], nsqds: Sequence[str], trust: Trust) -> None:
        """trust: learns of the nodes that lookup servers list."""
        self._ask, self._trust = ask, trust
        self.lookupds = tuple(lookupds)
        self.nsqds = tuple(nsqds)
        self._log = log

    @property
    def has_lookupds(self) -> bool:
        """Whether nodes are found by lookup servers."""
        return bool(self.lookupds)

    def use_lookupds(self, addresses: Iterable[str]) -> None:
        """Replaces the lookup servers."""
        self.lookupds = tuple(addresses)
        self._trust.ask(self.lookupds)

    # ------------------------------------------------------------------ calls

    async def call(self, address: str, ask: Ask) -> bytes:
        """The body of a 200. Raises UpstreamError."""
        body = checked(await self.answer(address, ask))
        if len(body) > LONG_BODY:
            await asyncio.sleep(0)      # joining its parts took long enough: others run before it is decoded
        return body

    async def answer(self, address: str, ask: Ask) -> Answer:
        """Any answer. Raises UpstreamError."""
        self._log.debug("CI: querying http://%s%s", address, ask.target)
        return await self._ask(address, ask)

    async def get(self, address: str, ask: Ask, decode: Callable[[bytes], T]) -> T:
        """The same, decoded. Raises UpstreamError."""
        body = await self.call(address, ask)
        try:
            return decode(body)
        except JSONError as error:
            raise UpstreamError(f'Get "http://{address}{ask.target}": {error}') from None

    async def ask_all(self, addresses: Iterable[str], ask: Ask, decode: Callable[[bytes], T]) -> Found[T]:
        """Asks all of them."""
        return await together(addresses, lambda address: self.get(address, ask, decode))

    # ------------------------------------------------------------------ nodes

    async def listed(self, ask: Ask) -> Found[ProducerList]:
        """The nodes in the answers of lookup servers. ask: LOOKUP_NODES, or the nodes of a topic."""
        found = await self.ask_all(self.lookupds, ask, upstream.producer_list)
        for lookupd, answer in found.answers.items():
            self._trust.heard(lookupd, answer.producers or (), ask is LOOKUP_NODES)
        return found

    async def known(self) -> tuple[list[Known], dict[str, UpstreamError]]:
        """All nodes, sorted by host name, and the errors of servers that do not answer. Raises AllFailed."""
        if not self.lookupds:
            return await self._asked()
        found = (await self.listed(LOOKUP_NODES)).usable(LOOKUPD)
        merged: dict[str, Known] = {}
        for lookupd, answer in found.answers.items():
            for producer in answer.producers or ():
                node = merged.setdefault(producer.tcp, Known(producer, [], {}))
                if node.remote_addresses is not None:
                    node.remote_addresses.append(f"{lookupd}/{producer.remote_address}")
                marks = producer.tombstones or []
                for at, topic in enumerate(producer.topics or ()):
                    node.topics[topic] = node.topics.get(topic, False) or (at < len(marks) and marks[at])
        return sorted_nodes(merged.values()), found.errors

    async def has_node(self, address: str) -> bool:
        """Whether an address is a node's, or was one's lately. Raises AllFailed."""
        if not self._trust.is_known(address):
            await self.known()
        return self._trust.is_known(address)

    async def _asked(self) -> tuple[list[Known], dict[str, UpstreamError]]:
        stats = Ask("GET", target("/stats", format="json", include_clients="false"), limit=LONGEST)

        async def one(address: str) -> tuple[Info, Names]:
            info = await self.get(address, Ask("GET", "/info"), upstream.info)
            return info, await self.get(address, stats, nsqstats.names)

        found = (await together(self.nsqds, one)).usable(NSQD)
        return sorted_nodes(
            Known(of_info(info), None, {topic.topic_name: False for topic in its.topics or ()})
            for info, its in found.answers.values()), found.errors

    async def producers(self, topic: str) -> tuple[list[Producer], dict[str, UpstreamError]]:
        """The nodes that have a topic, and errors of others. Raises AllFailed."""
        if self.lookupds:
            found = (await self.listed(Ask("GET", target("/lookup", topic=topic)))).usable(LOOKUPD)
            merged = {producer.http: producer for answer in found.answers.values()
                      for producer in answer.producers or ()}
            return [*merged.values()], found.errors
        ask = Ask("GET", target("/stats", format="json", topic=topic, include_clients="false"))

        async def one(address: str) -> Producer | None:
            stats = await self.get(address, ask, nsqstats.stats)
            if not any(each.topic_name == topic for each in stats.topics or ()):
                return None
            return of_info(await self.get(address, Ask("GET", "/info"), upstream.info))

        asked = (await together(self.nsqds, one)).usable(NSQD)
        return [each for each in asked.answers.values() if each is not None], asked.errors

    async def stats(self, producers: Iterable[Producer], topic: str, channel: str = "",
                    clients: bool = False) -> Found[Stats]:
        """/stats of a topic, of nodes. Raises AllFailed."""
        ask = Ask("GET", target("/stats", format="json", topic=topic, channel=channel or None,
                                include_clients=None if clients else "false"))
        return (await self.ask_all([each.http for each in producers], ask, nsqstats.stats)).usable(NSQD)

    async def raw_stats(self, producers: Iterable[Producer], clients: bool = False) -> Found[RawStats]:
        """The same of all topics, for topics_in(). Raises AllFailed."""
        ask = Ask("GET", target("/stats", format="json", include_clients=None if clients else "false"), limit=LONGEST)
        return (await self.ask_all([each.http for each in producers], ask, nsqstats.raw_stats)).usable(NSQD)

    async def topics(self) -> Found[list[str]]:
        """The names of topics by lookup server, or by node. Raises AllFailed."""
        if self.lookupds:
            found = (await self.ask_all(self.lookupds, LOOKUP_TOPICS, upstream.topic_list)).usable(LOOKUPD)
            return Found({address: answer.topics or [] for address, answer in found.answers.items()}, found.errors)
        ask = Ask("GET", target("/stats", format="json", include_clients="false"), limit=LONGEST)
        stats = (await self.ask_all(self.nsqds, ask, nsqstats.names)).usable(NSQD)
        return Found({address: [topic.topic_name for topic in answer.topics or ()]
                      for address, answer in stats.answers.items()}, stats.errors)


async def topics_in(stats: RawStats, pace: Pace) -> AsyncIterator[TopicStats]:
    """The topics of an answer, decoded one by one; those that make no sense are left out."""
    for part in stats.parts():
        with suppress(JSONError):
            yield nsqstats.one_topic(part)
        if pace.over():
            await pace.rest()


async def together(addresses: Iterable[str], call: Callable[[str], Awaitable[T]]) -> Found[T]:
    """Calls for several addresses at the same time. call: a coroutine function that may raise UpstreamError."""
    names = list(dict.fromkeys(addresses))
    results = await asyncio.gather(*map(call, names), return_exceptions=True)
    found: Found[T] = Found({}, {})
    for name, result in zip(names, results, strict=True):
        if isinstance(result, UpstreamError):
            found.errors[name] = result
        elif isinstance(result, BaseException):
            raise result
        else:
            found.answers[name] = result
    return found


def of_info(info: Info) -> Producer:
    """A node by its own /info."""
    return Producer(hostname=info.hostname, broadcast_address=info.broadcast_address, tcp_port=info.tcp_port,
                    http_port=info.http_port, version=info.version)


def sorted_nodes(nodes: Iterable[Known]) -> list[Known]:
    """By host name."""
    return sorted(nodes, key=lambda node: (node.producer.hostname, node.producer.tcp))


def version_key(version: str) -> tuple[int, ...]:
    """A version as it compares."""
    return tuple(int(part) for part in _NUMBERS.findall(version)[:3])
