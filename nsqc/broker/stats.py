"""Read-only snapshots of topics, channels and clients, in nsqd's shape: JSON keys, their order, and its nulls.

Reads the broker and the sessions, changes neither; a little at a time, so that others have the loop in between. Who
presents a snapshot (HTTP, statsd) is another file.
"""

import gc
import heapq
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from nsqc.broker.latency import LatencyWindow
from nsqc.store.slab import held_bytes

SLICE_S = 0.002
SORTED_AT_ONCE = 1024
_KEPT_PAUSES = 256


class Latency(Struct, frozen=True):
    """End-to-end latencies of finished messages; percentiles is None where none are asked for."""

    count: int = 0
    percentiles: list[dict[str, float | int]] | None = None


NO_LATENCY = Latency()


class PubCount(Struct, frozen=True, gc=False):
    """How many messages a client published to a topic."""

    topic: str
    count: int


class ClientStats(Struct, kw_only=True, frozen=True):
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
    pub_counts: list[PubCount] | UnsetType = UNSET
    tls: bool = False
    tls_cipher_suite: str = ""
    tls_version: str = ""
    tls_negotiated_protocol: str = ""
    tls_negotiated_protocol_is_mutual: bool = False


class ChannelStats(Struct, frozen=True):
    """One channel; clients is None where they were not asked for."""

    channel_name: str
    depth: int
    backend_depth: int
    in_flight_count: int
    deferred_count: int
    message_count: int
    requeue_count: int
    timeout_count: int
    client_count: int
    clients: list[ClientStats] | None
    paused: bool
    e2e_processing_latency: Latency


class TopicStats(Struct, frozen=True):
    """One topic with its channels, sorted by name; message_bytes counts bodies."""

    topic_name: str
    channels: list[ChannelStats]
    depth: int
    backend_depth: int
    message_count: int
    message_bytes: int
    paused: bool
    e2e_processing_latency: Latency


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


class Slice:
    """The time that long work may take of one loop iteration.

    Generators here yield None where it is over; whoever drives them renews it then, in the next iteration.
    """

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begins again."""
        self.until = time.monotonic() + SLICE_S

    def over(self) -> bool:
        """Whether the rest must wait."""
        return time.monotonic() > self.until


def topics_of(broker: Any, part: Slice, topic: str = "", channel: str = "", include_clients: bool = True,
              pack: Callable[[ClientStats], Any] | None = None) -> Iterator[TopicStats | None]:
    """All topics or one, with all channels or those of one name; sorted by name. None: see Slice.

    What is deleted meanwhile is left out. pack makes what is listed of a client.
    """
    for name in [topic.encode()] if topic else in_order(broker.topics, part):
        found = broker.topics.get(name)
        if found is not None:
            channels = _channels_of(found, channel)
            if channels is not None:
                listed = []
                for one in channels:
                    if one.exiting:
                        continue
                    listed.append((yield from _channel_stats(one, topic, include_clients, pack, part)))
                if broker.topics.get(name) is found:
                    yield _topic_stats(found, listed)
        if part.over():
            yield None


def in_order(names: Iterable[bytes], part: Slice) -> Iterator[bytes | None]:
    """The names of now, sorted; None: see Slice."""
    left = list(names)
    runs = []
    for at in range(0, len(left), SORTED_AT_ONCE):
        runs.append(sorted(left[at:at + SORTED_AT_ONCE]))
        if part.over():
            yield None
    yield from runs[0] if len(runs) == 1 else heapq.merge(*runs)


def _channels_of(topic: Any, channel: str) -> list[Any] | None:
    """The channels to list for a topic; None leaves the topic out."""
    if not channel:
        return [topic.channels[name] for name in sorted(topic.channels)]
    found = topic.channel(channel.encode())
    return None if found is None else [found]


def _topic_stats(topic: Any, channels: list[ChannelStats]) -> TopicStats:
    return TopicStats(topic.name.decode(), channels, topic.depth, topic.backend_depth, topic.message_count,
                      topic.message_bytes, topic.paused, _latency(list(topic.channels.values())))


def _channel_stats(channel: Any, topic: str, include_clients: bool, pack: Callable[[ClientStats], Any] | None,
                   part: Slice) -> Generator[None, None, ChannelStats]:
    consumers = channel.consumers
    clients = None
    if include_clients:
        clients = []
        for consumer in consumers:
            client = consumer.stats(topic or None)
            clients.append(client if pack is None else pack(client))
            if part.over():
                yield None
    return ChannelStats(channel.name.decode(), channel.depth, channel.backend_depth, channel.in_flight_count,
                        channel.deferred_count, channel.message_count, channel.requeue_count, channel.timeout_count,
                        len(consumers), clients, channel.paused, _latency([channel]))


def _latency(channels: list[Any]) -> Latency:
    """What the finished messages of some channels took, together."""
    windows = [channel.latency for channel in channels if channel.latency is not None]
    if not windows:
        return NO_LATENCY
    count, values = LatencyWindow.result(windows)
    return Latency(count, [{"quantile": whole(quantile), "value": whole(value)} for quantile, value in values])


def whole(number: float) -> float | int:
    """Whole numbers without a point, as the original's JSON has them."""
    return int(number) if number.is_integer() else number


def producers_of(sessions: Iterable[Any], topic: str, part: Slice) -> Iterator[ClientStats | None]:
    """Whoever has published anything, as seen for the topic. None: see Slice."""
    for session in list(sessions):
        every = session.stats(None)
        if every.pub_counts:
            yield session.stats(topic) if topic else every
        if part.over():
            yield None


def _malloc_info() -> Callable[[], Any]:
    """mallinfo2() of the C library: bytes by the names of its struct."""
    import ctypes  # at the first report: a daemon that sends none needs neither the time nor the memory

    class MallocInfo(ctypes.Structure):
        _fields_ = tuple((name, ctypes.c_size_t) for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"))

    try:
        ask = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        # Not glibc, or an old one: its figures stay 0.
        return MallocInfo
    ask.restype = MallocInfo
    return ask


class MemoryWatch:
    """Knows what the runtime tells of its memory, and how long its collector paused."""

    def __init__(self) -> None:
        self._pauses: deque[int] = deque(maxlen=_KEPT_PAUSES)
        self._began_ns = 0
        self._malloc_info: Callable[[], Any] | None = None

    def start(self) -> None:
        """Begin to time the collector's pauses."""
        gc.callbacks.append(self._collecting)

    def stop(self) -> None:
        """Time no more."""
        gc.callbacks.remove(self._collecting)

    def read(self) -> MemoryStats:
        """heap_objects are Python's blocks; heap bytes the C allocator's, those in use with the messages.

        Idle is what the allocator keeps free, released what of that lies at the end and can go back. No collection is
        due at a number of bytes: next_gc_bytes is 0.
        """
        self._malloc_info = self._malloc_info or _malloc_info()
        heap = self._malloc_info()
        pauses = sorted(self._pauses)
        return MemoryStats(
            heap_objects=sys.getallocatedblocks(),
            heap_idle_bytes=heap.fordblks,
            heap_in_use_bytes=heap.uordblks + heap.hblkhd + held_bytes(),
            heap_released_bytes=heap.keepcost,
            gc_pause_usec_100=_percentile(pauses, 100),
            gc_pause_usec_99=_percentile(pauses, 99),
            gc_pause_usec_95=_percentile(pauses, 95),
            next_gc_bytes=0,
            gc_total_runs=sum(generation["collections"] for generation in gc.get_stats()),
        )

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = time.perf_counter_ns()
        else:
            self._pauses.append((time.perf_counter_ns() - self._began_ns) // 1000)


def _percentile(values: list[int], percent: int) -> int:
    """The value that percent of the sorted ones do not exceed; 0 where there is none."""
    if not values:
        return 0
    return values[min(len(values) - 1, max(0, -(-len(values) * percent // 100) - 1))]
