"""/stats of an nsqd, as far as anything here reads it. Absent fields have defaults."""

from __future__ import annotations

from msgspec import Raw, Struct

from nsqc.wire.outside import Decoder


class Latency(Struct, gc=False):
    """End-to-end latencies; values in nanoseconds."""

    count: int = 0
    percentiles: list[dict[str, float]] | None = None


class Client(Struct, gc=False):
    """A consumer."""

    client_id: str = ""
    hostname: str = ""
    version: str = ""
    remote_address: str = ""
    state: int = 0
    ready_count: int = 0
    in_flight_count: int = 0
    message_count: int = 0
    finish_count: int = 0
    requeue_count: int = 0
    connect_ts: int = 0
    sample_rate: int = 0
    deflate: bool = False
    snappy: bool = False
    user_agent: str = ""
    authed: bool = False
    auth_identity: str = ""
    auth_identity_url: str = ""
    tls: bool = False
    tls_cipher_suite: str = ""
    tls_version: str = ""
    tls_negotiated_protocol: str = ""
    tls_negotiated_protocol_is_mutual: bool = False


class Channel(Struct, gc=False):
    """A channel. rules: delivery rules that differ from the defaults."""

    channel_name: str
    depth: int = 0
    backend_depth: int = 0
    in_flight_count: int = 0
    deferred_count: int = 0
    message_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    client_count: int = 0
    clients: list[Client] | None = None
    paused: bool = False
    e2e_processing_latency: Latency | None = None
    rules: dict[str, object] | None = None
    dead_letter_count: int = 0
    expired_count: int = 0
    overflow_count: int = 0

    @property
    def consumers(self) -> int:
        """The number of its clients; an old nsqd lists them only."""
        return self.client_count or len(self.clients or ())

    @property
    def held(self) -> int:
        """Messages that the channel has received and not finished."""
        return self.depth + self.in_flight_count + self.deferred_count


class Log(Struct, gc=False):
    """The log of a topic that has damaged messages."""

    damaged: int = 0


class Topic(Struct, gc=False):
    """A topic with its channels. publish_ids: None: it remembers none."""

    topic_name: str
    channels: list[Channel] | None = None
    depth: int = 0
    backend_depth: int = 0
    message_count: int = 0
    message_bytes: int = 0
    paused: bool = False
    e2e_processing_latency: Latency | None = None
    log: Log | None = None
    publish_ids: int | None = None
    deduplicated: int = 0
    forgotten_ids: int = 0


class Stats(Struct, gc=False):
    """/stats."""

    version: str = ""
    health: str = ""
    start_time: int = 0
    topics: list[Topic] | None = None


class RawStats(Struct, gc=False):
    """/stats whose topics are decoded one by one: all at once would take an event loop too long."""

    version: str = ""
    health: str = ""
    start_time: int = 0
    topics: list[Raw] | None = None


class NamedTopic(Struct, gc=False):
    """A topic by its name alone."""

    topic_name: str


class Names(Struct, gc=False):
    """/stats without the statistics: a fifth of the work."""

    topics: list[NamedTopic] | None = None


stats = Decoder(Stats).decode
names = Decoder(Names).decode
raw_stats = Decoder(RawStats).decode
one_topic = Decoder(Topic).decode
