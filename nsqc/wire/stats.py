"""The JSON of /stats, which the daemon writes, and tools and the admin server read.

A number of topics or channels is declared here once: its key in /stats, its key for statsd, its metric, and its column
in `nsqc top`. nsqc/broker/figures.pxd has a C field of the same name for each.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain, pairwise
from typing import Annotated, NamedTuple, get_type_hints

from msgspec import Meta, Raw, Struct, field

from nsqc.wire.outside import Decoder, JSONError

# ====================================================================== stats

# A topic or channel. Names come from anyone who poses as a node, and end up in addresses, queries and files: an answer
# with any other name is not nsqd's.
Name = Annotated[str, Meta(pattern=r"\A[.a-zA-Z0-9_-]+(#ephemeral)?\Z", max_length=64)]


class Figure(NamedTuple):
    """Where a number appears beside /stats.

    metric: its name without nsqc_topic_ or nsqc_channel_; statsd: nsqd's key, empty: not sent; column: its title in
    `nsqc top`, empty: not shown; rises: a counter.
    """

    metric: str
    help: str
    statsd: str = ""
    unit: str = ""
    column: str = ""
    rises: bool = False


gauge = Figure
counter = partial(Figure, rises=True)


def _nothing() -> None:
    pass


# Defaults that are written: omit_defaults leaves out only a value that is the default itself, and a factory makes
# another one. So nsqd's fields are always there, and nsqc's own only if they say something.
NUMBER: int = field(default_factory=int)
TEXT: str = field(default_factory=str)
FLAG: bool = field(default_factory=bool)
NULL: None = field(default_factory=_nothing)


class Latency(Struct, frozen=True, gc=False):
    """End-to-end latencies of finished messages, nanoseconds; percentiles is None if none are asked for."""

    count: int = 0
    percentiles: list[dict[str, float]] | None = None


class PubCount(Struct, frozen=True, gc=False):
    """The number of messages that a client published to a topic."""

    topic: str
    count: int


class ClientStats(Struct, kw_only=True, frozen=True, gc=False, omit_defaults=True):
    """One V2 connection. connect_ts is in unix seconds, and so is idle_since: when RDY fell to 0, or the client began
    to back off by its own word (backs_off)."""

    client_id: str = TEXT
    hostname: str = TEXT
    version: str = TEXT
    remote_address: str = TEXT
    state: int = NUMBER
    ready_count: int = NUMBER
    in_flight_count: int = NUMBER
    message_count: int = NUMBER
    finish_count: int = NUMBER
    requeue_count: int = NUMBER
    connect_ts: int = NUMBER
    sample_rate: int = NUMBER
    deflate: bool = FLAG
    snappy: bool = FLAG
    user_agent: str = TEXT
    idle_since: int = 0
    backs_off: bool = False
    authed: bool = False
    auth_identity: str = ""
    auth_identity_url: str = ""
    topology_zone: str | None = None
    topology_region: str | None = None
    pub_counts: list[PubCount] | None = None
    tls: bool = FLAG
    tls_cipher_suite: str = TEXT
    tls_version: str = TEXT
    tls_negotiated_protocol: str = TEXT
    tls_negotiated_protocol_is_mutual: bool = FLAG

    @property
    def connected(self) -> int:
        """Nanoseconds since it has connected, in whole seconds."""
        return max(0, int(time.time()) - self.connect_ts) * 1_000_000_000


class ChannelStats(Struct, frozen=True, gc=False, omit_defaults=True):
    """One channel. clients is None if they were not asked for; rules: those that differ from the defaults."""

    channel_name: Name
    depth: Annotated[int, gauge("depth", "Queued messages, in memory and on disk.", "depth")] = NUMBER
    backend_depth: Annotated[int, gauge(
        "backend_depth", "The part of channel_depth on disk; for a log, those beyond nsqd's memory queue.",
        "backend_depth")] = NUMBER
    in_flight_count: Annotated[int, gauge(
        "in_flight", "Messages delivered and not finished.", "in_flight_count")] = NUMBER
    deferred_count: Annotated[int, gauge(
        "deferred", "Messages waiting for their delay to end.", "deferred_count")] = NUMBER
    message_count: Annotated[int, counter("messages", "Messages received by the channel.", "message_count")] = NUMBER
    zone_local_msg_count: int = 0       # deliveries by distance
    region_local_msg_count: int = 0
    global_msg_count: int = 0
    requeue_count: Annotated[int, counter("requeues", "Messages requeued by clients.", "requeue_count")] = NUMBER
    timeout_count: Annotated[int, counter("timeouts", "Deliveries that timed out.", "timeout_count")] = NUMBER
    client_count: Annotated[int, gauge("clients", "Consumers of the channel.", "clients")] = NUMBER
    clients: list[ClientStats] | None = NULL
    paused: bool = FLAG
    e2e_processing_latency: Latency | None = NULL
    rules: Mapping[str, object] | None = None
    dead_letter_count: Annotated[int, counter(
        "dead_letters", "Messages moved to the channel's dead-letter topic.", column="DEAD")] = 0
    redriven_count: Annotated[int, counter("redriven", "Dead letters that were redriven to the channel.")] = 0
    expired_count: Annotated[int, counter(
        "expired", "Messages that message_ttl has dropped or moved to the dead-letter topic.", column="EXPIRED")] = 0
    overflow_count: Annotated[int, counter(
        "overflows", "The same of max_depth and max_bytes.", column="OVERFLOW")] = 0

    @property
    def memory_depth(self) -> int:
        """The part of depth in memory."""
        return self.depth - self.backend_depth

    @property
    def consumers(self) -> int:
        """The number of its clients; an old nsqd only lists them."""
        return self.client_count or len(self.clients or ())

    @property
    def held(self) -> int:
        """Messages that the channel has received and not finished."""
        return self.depth + self.in_flight_count + self.deferred_count


class LogStats(Struct, frozen=True, gc=False):
    """The log of a topic; bytes of its records, and the numbers of damaged and missing ones."""

    first_offset: int = 0
    next_offset: int = 0
    bytes: int = 0
    segments: int = 0
    damaged: int = 0
    missing: int = 0


class TopicStats(Struct, frozen=True, gc=False, omit_defaults=True):
    """One topic with its channels, sorted by name; message_bytes counts bodies. log: only if it has lost records.
    publish_ids to forgotten_ids: only if the topic remembers ids of publishes."""

    topic_name: Name
    channels: list[ChannelStats] | None = NULL
    depth: Annotated[int, gauge("depth", "Messages queued in the topic itself.", "depth")] = NUMBER
    backend_depth: Annotated[int, gauge("backend_depth", "The part of topic_depth on disk.", "backend_depth")] = NUMBER
    message_count: Annotated[int, counter(
        "messages", "Messages published, including any that could not be written afterwards.",
        "message_count")] = NUMBER
    message_bytes: Annotated[int, counter(
        "message_bytes", "Bytes of their bodies.", "message_bytes", unit="bytes")] = NUMBER
    paused: bool = FLAG
    e2e_processing_latency: Latency | None = NULL
    log: LogStats | None = None
    publish_ids: Annotated[int | None, gauge("publish_ids", "Ids of publishes that the topic remembers.")] = None
    deduplicated: Annotated[int | None, counter(
        "deduplicated", "Publishes that were not stored again, since their id was known.")] = None
    forgotten_ids: Annotated[int | None, counter(
        "publish_ids_forgotten", "Ids that were forgotten before their time: dedupe_ids is too low.")] = None
    expired_count: Annotated[int, counter(
        "expired", "Messages that message_ttl has dropped in the topic itself.")] = 0
    overflow_count: Annotated[int, counter("overflows", "The same of max_depth and max_bytes.")] = 0
    waiting_publishes: int = 0          # that wait for room, with --publish-wait

    @property
    def memory_depth(self) -> int:
        """The part of depth in memory."""
        return self.depth - self.backend_depth


def figures_of(shape: type[Struct]) -> dict[str, Figure]:
    """The numbers among the fields of ChannelStats or TopicStats."""
    return {name: figure for name, hint in get_type_hints(shape, include_extras=True).items()
            for figure in getattr(hint, "__metadata__", ()) if isinstance(figure, Figure)}


def percentiles_of(latency: Latency | None) -> list[dict[str, float]]:
    """Each has a quantile and a value in nanoseconds; empty if none are known."""
    return [] if latency is None else latency.percentiles or []


# ====================================================================== nsqstats
# Decoders for /stats of an nsqd: as a whole, topic by topic, or names alone.

_TOPIC = re.compile(rb'\{\s*"topic_name"\s*:')    # never within a text, where quotes are escaped
MOST_TOPIC = 8 << 20    # bytes of a topic with its channels and clients
_BETWEEN = b",] \t\r\n"


class Stats(Struct, gc=False):
    """/stats."""

    version: str = ""
    health: str = ""
    start_time: int = 0
    topics: list[TopicStats] | None = None


class RawStats(Struct, gc=False):
    """/stats whose topics are decoded one by one: all at once would take an event loop too long, and memory without
    bounds, since an object for each element takes many times its text."""

    version: str = ""
    health: str = ""
    start_time: int = 0
    topics: Raw = Raw(b"null")

    def parts(self) -> Iterator[bytes]:
        """The text of each topic, which begins with its name, as in any nsqd's answer; without those that are too
        long."""
        text = memoryview(self.topics)
        bounds = chain((found.start() for found in _TOPIC.finditer(text)), (len(text),))
        for begin, end in pairwise(bounds):
            if end - begin <= MOST_TOPIC:
                yield bytes(text[begin:end]).rstrip(_BETWEEN)


class NamedTopic(Struct, gc=False):
    """A topic by its name alone."""

    topic_name: Name


class Names(Struct, gc=False):
    """/stats without the statistics: a fifth of the work."""

    topics: list[NamedTopic] | None = None


stats = Decoder(Stats).decode
names = Decoder(Names).decode
_raw_stats = Decoder(RawStats).decode
one_topic = Decoder(TopicStats).decode


def raw_stats(body: bytes) -> RawStats:
    """/stats, to be decoded topic by topic. Raises JSONError."""
    found = _raw_stats(body)
    if bytes(memoryview(found.topics)[:1]) not in (b"[", b"n"):
        raise JSONError("topics is not a list")
    return found
