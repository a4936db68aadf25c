"""Read-only snapshots of topics, channels and clients, in nsqd's shape: JSON keys, their order, and its nulls.

Only reads the broker and the sessions, a little per slice, so that the loop stays responsive. HTTP and statsd present
the snapshots.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from msgspec import Raw, Struct

from nsqc.broker.channel import CHANNEL_FIGURES, Channel
from nsqc.broker.figures import LatencyWindow
from nsqc.broker.topic import TOPIC_FIGURES, Topic
from nsqc.loop.uv import span_began, span_ended
from nsqc.store import message
from nsqc.store.disk import segment
from nsqc.store.log import frame
from nsqc.store.memory import held_bytes
from nsqc.store.work import Slicer
from nsqc.wire import framer, parser
from nsqc.wire.stats import ChannelStats, ClientStats, Latency, LogStats, TopicStats

# ====================================================================== counters
# Counters of live objects in compiled packages, for leak checks and /debug/pprof/heap.

def counts() -> dict[str, int]:
    """Live objects by kind.

    Every build counts deliveries, their places on disk, and reads and writes of files. Only a debug build counts
    messages and the input and output buffers of connections; otherwise these are 0.
    """
    return {
        "messages": message.messages_alive(),
        "deliveries": message.deliveries_alive(),
        "places": message.places_alive(),
        "write_buffers": segment.write_buffers_alive(),
        "read_blocks": segment.read_blocks_alive(),
        "log_buffers": frame.log_buffers_alive(),
        "input_buffers": parser.alive(),
        "output_buffers": framer.alive(),
    }


# ====================================================================== stats

if TYPE_CHECKING:  # sessions import this module
    from nsqc.broker.broker import Broker
    from nsqc.broker.channel import Channel, Consumer
    from nsqc.broker.topic import Topic

SORTED_AT_ONCE = 1024
_KEPT_PAUSES = 256


NO_LATENCY = Latency()


def _arranged(shape: type[Struct], *names: str) -> itemgetter[object]:
    """Reorders values with these names to match the fields."""
    return itemgetter(*map(names.index, shape.__struct_fields__))


_as_topic = _arranged(TopicStats, "topic_name", "channels", "paused", "e2e_processing_latency", "log",
                      "waiting_publishes", *TOPIC_FIGURES)
_as_channel = _arranged(ChannelStats, "channel_name", "zone_local_msg_count", "region_local_msg_count",
                        "global_msg_count", "clients", "paused", "e2e_processing_latency", "rules",
                        *CHANNEL_FIGURES)


class MemoryStats(Struct, frozen=True, gc=False):
    """nsqd's memory keys, as far as this runtime knows them; pauses in microseconds, see MemoryWatch.read."""

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
    """The current names, sorted; None: the slice is over."""
    left = list(names)
    runs = []
    for at in range(0, len(left), SORTED_AT_ONCE):
        runs.append(sorted(left[at:at + SORTED_AT_ONCE]))
        if slicer.is_over():
            yield None
    yield from runs[0] if len(runs) == 1 else heapq.merge(*runs)


def _channels_of(topic: Topic, name: str) -> list[Channel] | None:
    """The channels to list for a topic; None omits the topic."""
    if not name:
        return [topic.channels[key] for key in sorted(topic.channels)]
    channel = topic.channel(name.encode())
    return None if channel is None else [channel]


def _topic_stats(topic: Topic, channels: list[ChannelStats]) -> TopicStats:
    return TopicStats(*_as_topic((topic.name.decode(), channels, topic.paused, _latency(topic.channels.values()),
                                  _log_stats(topic), len(topic.crowd), *topic.figures())))


def _log_stats(topic: Topic) -> LogStats | None:
    log = topic.log
    if log is None or not (log.damaged or log.missing):
        return None     # like any other topic
    begin, end = log.segment_numbers
    return LogStats(log.first, log.following, log.bytes, end - begin, log.damaged, log.missing)


def _channel_stats(channel: Channel, topic: str, include_clients: bool,
                   pack: Callable[[ClientStats], ClientStats | Raw] | None,
                   slicer: Slicer, by_distance: bool) -> Generator[None, None, ChannelStats]:
    figures = channel.figures()
    zone, region, elsewhere = channel.deliveries() if by_distance else (0, 0, 0)
    clients: list[ClientStats] | None = None
    if include_clients:
        clients = []
        for consumer in channel.consumers:
            client = consumer.stats(topic or None)
            # Raw: only JSON is made of it, and has the client's JSON in its place.
            clients.append(client if pack is None else cast(ClientStats, pack(client)))
            if slicer.is_over():
                yield None
    return ChannelStats(*_as_channel((
        channel.name.decode(), zone, region, elsewhere, clients, channel.paused,
        NO_LATENCY if channel.latency is None else _latency([channel]),
        None if channel.rule is None else channel.rule.as_json(), *figures)))


def _latency(channels: Iterable[Channel]) -> Latency:
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
    """The clients that have published, with their count for the topic. None: the slice is over."""
    for session in list(sessions):
        stats = session.stats(None)
        if stats.pub_counts:
            yield session.stats(topic) if topic else stats
        if slicer.is_over():
            yield None


class MemoryWatch:
    """The runtime's memory, and the pauses of its collector."""

    def __init__(self) -> None:
        self._pauses: deque[int] = deque(maxlen=_KEPT_PAUSES)
        self._began_ns = 0

    def start(self) -> None:
        """Begins to time the collector's pauses."""
        gc.callbacks.append(self._collecting)

    def stop(self) -> None:
        """Stops that."""
        gc.callbacks.remove(self._collecting)

    def read(self) -> MemoryStats:
        """heap_objects counts Python's blocks; bytes are the C allocator's, and those in use include messages.

        Idle bytes are kept free by the allocator; released ones are at its end and can be returned to the system. No
        number of bytes triggers a collection, so next_gc_bytes is 0.
        """
        from nsqc.store.memory import heap  # here: many daemons never report it

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


# ====================================================================== timers
# Timers for channels, and for retries after memory or the disk failed.
#
# A channel arms its own next deadline and is called then; an idle channel costs nothing.

RESUME_S = 0.25


class Timers:
    """Calls expire() at deadlines and resume() soon, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._timers: dict[Channel, asyncio.TimerHandle] = {}

    def arm(self, channel: Channel, deadline_ns: int) -> None:
        """Has channel.expire() called at a monotonic time; replaces an earlier deadline."""
        self.disarm(channel)
        # The loop's timers count whole milliseconds: adding half of one avoids rounding to before the deadline.
        delay = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9 + 0.0005)
        self._timers[channel] = self._loop.call_later(delay, self._fire, channel)

    def disarm(self, channel: Channel) -> None:
        """The channel is deleted."""
        timer = self._timers.pop(channel, None)
        if timer is not None:
            timer.cancel()

    def resume_later(self, queue: Topic | Channel) -> None:
        """Has queue.resume() called soon; an immediate retry would fail again."""
        self._loop.call_later(RESUME_S, queue.resume)

    def close(self) -> None:
        """Drops all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _fire(self, channel: Channel) -> None:
        del self._timers[channel]
        channel.expire()
