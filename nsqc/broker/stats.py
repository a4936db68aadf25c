"""Read-only snapshots of topics, channels and clients, in nsqd's shape: JSON keys, their order, and its nulls.

Reads the broker and the sessions and changes neither; a little at a time, so others have the loop in between. HTTP and
statsd present the snapshots.
"""

from __future__ import annotations

import gc
import heapq
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, cast

from msgspec import UNSET, Raw, Struct, UnsetType

from nsqc.broker.latency import LatencyWindow
from nsqc.loop.watch import span_began, span_ended
from nsqc.store.slab import held_bytes
from nsqc.store.slices import Slicer

if TYPE_CHECKING:  # sessions import this module
    from nsqc.broker.broker import Broker
    from nsqc.broker.channel import Channel
    from nsqc.broker.consumer import Consumer
    from nsqc.broker.topic import Topic

SORTED_AT_ONCE = 1024
_KEPT_PAUSES = 256


class Latency(Struct, frozen=True, gc=False):
    """End-to-end latencies of finished messages; percentiles is None where none are asked for."""

    count: int = 0
    percentiles: list[dict[str, float | int]] | None = None


NO_LATENCY = Latency()


class PubCount(Struct, frozen=True, gc=False):
    """How many messages a client published to a topic."""

    topic: str
    count: int


class ClientStats(Struct, kw_only=True, frozen=True, gc=False):
    """One V2 connection. connect_ts is in unix seconds; fields that default to UNSET are left out of the JSON."""

    client_id: str
    hostname: str
    version: str = "V2"
    remote_address: str
    state: int
    ready_count: int
    in_flight_count: int
    message_count: int
    finish_count: int
    requeue_count: int
    connect_ts: int
    sample_rate: int = 0
    deflate: bool = False
    snappy: bool = False
    user_agent: str
    authed: bool | UnsetType = UNSET
    auth_identity: str | UnsetType = UNSET
    auth_identity_url: str | UnsetType = UNSET
    topology_zone: str | UnsetType = UNSET
    topology_region: str | UnsetType = UNSET
    pub_counts: list[PubCount] | UnsetType = UNSET
    tls: bool = False
    tls_cipher_suite: str = ""
    tls_version: str = ""
    tls_negotiated_protocol: str = ""
    tls_negotiated_protocol_is_mutual: bool = False


class ChannelStats(Struct, frozen=True, gc=False):
    """One channel; clients is None where they were not asked for. Deliveries by distance are left out where there are
    none."""

    channel_name: str
    depth: int
    backend_depth: int
    in_flight_count: int
    deferred_count: int
    message_count: int
    zone_local_msg_count: int | UnsetType
    region_local_msg_count: int | UnsetType
    global_msg_count: int | UnsetType
    requeue_count: int
    timeout_count: int
    client_count: int
    clients: list[ClientStats] | None
    paused: bool
    e2e_processing_latency: Latency
    rules: dict[str, str | int | float] | UnsetType = UNSET     # that are not the defaults
    dead_letter_count: int | UnsetType = UNSET      # messages that were moved to the dead-letter topic
    redriven_count: int | UnsetType = UNSET         # dead letters that came back
    expired_count: int | UnsetType = UNSET          # messages that message_ttl has dropped or moved
    overflow_count: int | UnsetType = UNSET         # the same of max_depth and max_bytes


class LogStats(Struct, frozen=True, gc=False):
    """The log of a topic; bytes of its records, and how many of them were found damaged or gone."""

    first_offset: int
    next_offset: int
    bytes: int
    segments: int
    damaged: int
    missing: int


class TopicStats(Struct, frozen=True, gc=False):
    """One topic with its channels, sorted by name; message_bytes counts bodies. log: if it has lost records.
    publish_ids to forgotten_ids: if it remembers ids of publishes."""

    topic_name: str
    channels: list[ChannelStats]
    depth: int
    backend_depth: int
    message_count: int
    message_bytes: int
    paused: bool
    e2e_processing_latency: Latency
    log: LogStats | UnsetType = UNSET
    publish_ids: int | UnsetType = UNSET
    deduplicated: int | UnsetType = UNSET
    forgotten_ids: int | UnsetType = UNSET
    expired_count: int | UnsetType = UNSET          # messages that message_ttl has dropped in the topic itself
    overflow_count: int | UnsetType = UNSET         # the same of max_depth and max_bytes


class MemoryStats(Struct, frozen=True, gc=False):
    """nsqd's memory keys, with what this runtime knows; pauses in microseconds, see MemoryWatch.read."""

    heap_objects: int
    heap_idle_bytes: int
    heap_in_use_bytes: int
    heap_released_bytes: int
    gc_pause_usec_100: int
    gc_pause_usec_99: int
    gc_pause_usec_95: int
    next_gc_bytes: int
    gc_total_runs: int


def topics_of(broker: Broker, topic: str = "", channel: str = "", include_clients: bool = True,
              pack: Callable[[ClientStats], ClientStats | Raw] | None = None) -> Iterator[TopicStats | None]:
    """All topics or one, with all channels or those of one name; sorted by name. None: the slice is over.

    What is deleted meanwhile is left out. Clients are listed as pack returns them.
    """
    for name in [topic.encode()] if topic else in_order(broker.topics, broker.slicer):
        listed = None if name is None else broker.topics.get(name)
        if name is not None and listed is not None:
            channels = _channels_of(listed, channel)
            if channels is not None:
                channel_stats = []
                for existing in channels:
                    if existing.exiting:
                        continue
                    channel_stats.append((yield from _channel_stats(
                        existing, topic, include_clients, pack, broker.slicer, broker.is_topology_aware)))
                if broker.topics.get(name) is listed:
                    yield _topic_stats(listed, channel_stats)
        if broker.slicer.is_over():
            yield None


def in_order(names: Iterable[bytes], slicer: Slicer) -> Iterator[bytes | None]:
    """The names there are now, sorted; None: the slice is over."""
    left = list(names)
    runs = []
    for at in range(0, len(left), SORTED_AT_ONCE):
        runs.append(sorted(left[at:at + SORTED_AT_ONCE]))
        if slicer.is_over():
            yield None
    yield from runs[0] if len(runs) == 1 else heapq.merge(*runs)


def _channels_of(topic: Topic, name: str) -> list[Channel] | None:
    """The channels to list for a topic; None leaves the topic out."""
    if not name:
        return [topic.channels[key] for key in sorted(topic.channels)]
    channel = topic.channel(name.encode())
    return None if channel is None else [channel]


def _topic_stats(topic: Topic, channels: list[ChannelStats]) -> TopicStats:
    known = topic.ids_known
    return TopicStats(topic.name.decode(), channels, topic.depth, topic.backend_depth, topic.message_count,
                      topic.message_bytes, topic.paused, _latency(list(topic.channels.values())), _log_stats(topic),
                      UNSET if known is None else known, UNSET if known is None else topic.deduplicated,
                      UNSET if known is None else topic.ids_forgotten,
                      topic.expired_count or UNSET, topic.overflow_count or UNSET)


def _log_stats(topic: Topic) -> LogStats | UnsetType:
    log = topic.log
    if log is None or not (log.damaged or log.missing):
        return UNSET  # a topic like any other
    begin, end = log.segment_numbers
    return LogStats(log.first, log.following, log.bytes, end - begin, log.damaged, log.missing)


def _channel_stats(channel: Channel, topic: str, include_clients: bool,
                   pack: Callable[[ClientStats], ClientStats | Raw] | None,
                   slicer: Slicer, by_distance: bool) -> Generator[None, None, ChannelStats]:
    consumers = channel.consumers
    zone, region, elsewhere = channel.deliveries() if by_distance else (0, 0, 0)
    clients: list[ClientStats] | None = None
    if include_clients:
        clients = []
        for consumer in consumers:
            client = consumer.stats(topic or None)
            # Raw: the JSON of a client takes its place where nothing but JSON is made of it.
            clients.append(client if pack is None else cast(ClientStats, pack(client)))
            if slicer.is_over():
                yield None
    return ChannelStats(channel.name.decode(), channel.depth, channel.backend_depth, channel.in_flight_count,
                        channel.deferred_count, channel.message_count, zone or UNSET, region or UNSET,
                        elsewhere or UNSET, channel.requeue_count, channel.timeout_count, len(consumers), clients,
                        channel.paused, _latency([channel]),
                        UNSET if channel.rule is None else channel.rule.as_json(),
                        channel.dead_letter_count or UNSET, channel.redriven_count or UNSET,
                        channel.expired_count or UNSET, channel.overflow_count or UNSET)


def _latency(channels: list[Channel]) -> Latency:
    """Latencies of the finished messages of all these channels."""
    windows = [channel.latency for channel in channels if channel.latency is not None]
    if not windows:
        return NO_LATENCY
    count, values = LatencyWindow.result(windows)
    return Latency(count, [{"quantile": whole(quantile), "value": whole(value)} for quantile, value in values])


def whole(number: float) -> float | int:
    """Whole numbers without a decimal point, as in nsqd's JSON."""
    return int(number) if number.is_integer() else number


def producers_of(sessions: Iterable[Consumer], topic: str, slicer: Slicer) -> Iterator[ClientStats | None]:
    """The clients that have published anything, with their count for the topic. None: the slice is over."""
    for session in list(sessions):
        stats = session.stats(None)
        if stats.pub_counts:
            yield session.stats(topic) if topic else stats
        if slicer.is_over():
            yield None


class MemoryWatch:
    """The runtime's memory, and how long its collector pauses."""

    def __init__(self) -> None:
        self._pauses: deque[int] = deque(maxlen=_KEPT_PAUSES)
        self._began_ns = 0

    def start(self) -> None:
        """Times the collector's pauses from now on."""
        gc.callbacks.append(self._collecting)

    def stop(self) -> None:
        """Ends that."""
        gc.callbacks.remove(self._collecting)

    def read(self) -> MemoryStats:
        """heap_objects counts Python's blocks; bytes are the C allocator's, and those in use include messages.

        Idle bytes are those that the allocator keeps free; released ones are at its end and can be returned to the
        system. No collection is due at a number of bytes, so next_gc_bytes is 0.
        """
        from nsqc.store.allocator import heap  # here: many daemons report it never

        in_use, idle, at_end = heap()
        pauses = sorted(self._pauses)
        return MemoryStats(
            heap_objects=sys.getallocatedblocks(),
            heap_idle_bytes=idle,
            heap_in_use_bytes=in_use + held_bytes(),
            heap_released_bytes=at_end,
            gc_pause_usec_100=_percentile(pauses, 100),
            gc_pause_usec_99=_percentile(pauses, 99),
            gc_pause_usec_95=_percentile(pauses, 95),
            next_gc_bytes=0,
            gc_total_runs=sum(generation["collections"] for generation in gc.get_stats()),
        )

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = span_began()
        else:
            self._pauses.append((span_began() - self._began_ns) // 1000)
            span_ended(self._began_ns, "garbage collection")


def _percentile(values: list[int], percent: int) -> int:
    """The value that percent of the sorted values do not exceed; 0 without values."""
    if not values:
        return 0
    return values[min(len(values) - 1, max(0, -(-len(values) * percent // 100) - 1))]
