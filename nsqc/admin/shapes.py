"""What nodes and lookup servers answer, as far as the admin server reads it. Absent fields have defaults."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from nsqc.net.remote import join_address
from nsqc.wire.outside import Decoder


class Producer(Struct, gc=False):
    """A node in an answer of nsqlookupd; in /nodes with its topics and a flag for each."""

    remote_address: str = ""
    hostname: str = ""
    broadcast_address: str = ""
    tcp_port: int = 0
    http_port: int = 0
    version: str = ""
    topics: list[str] | None = None
    tombstones: list[bool] | None = None

    @property
    def http(self) -> str:
        """Where its HTTP API is."""
        return join_address(self.broadcast_address, self.http_port)

    @property
    def tcp(self) -> str:
        """Where its TCP port is."""
        return join_address(self.broadcast_address, self.tcp_port)


class TopicList(Struct, gc=False):
    """/topics."""

    topics: list[str] | None = None


class ChannelList(Struct, gc=False):
    """/channels."""

    channels: list[str] | None = None


class ProducerList(Struct, gc=False):
    """/nodes and /lookup."""

    producers: list[Producer] | None = None
    channels: list[str] | None = None


class Info(Struct, gc=False):
    """/info of an nsqd."""

    version: str = ""
    broadcast_address: str = ""
    hostname: str = ""
    http_port: int = 0
    tcp_port: int = 0
    start_time: int = 0


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
    """A channel."""

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

    @property
    def consumers(self) -> int:
        """How many clients it has; an old nsqd lists them only."""
        return self.client_count or len(self.clients or ())


class Log(Struct, gc=False):
    """The log of a topic that has damaged messages."""

    damaged: int = 0


class Topic(Struct, gc=False):
    """A topic with its channels."""

    topic_name: str
    channels: list[Channel] | None = None
    depth: int = 0
    backend_depth: int = 0
    message_count: int = 0
    message_bytes: int = 0
    paused: bool = False
    e2e_processing_latency: Latency | None = None
    log: Log | None = None


class Stats(Struct, gc=False):
    """/stats."""

    version: str = ""
    health: str = ""
    start_time: int = 0
    topics: list[Topic] | None = None


class RawStats(Struct, gc=False):
    """/stats whose topics are decoded one by one: all at once would take the loop too long."""

    version: str = ""
    health: str = ""
    start_time: int = 0
    topics: list[Raw] | None = None


topic_list = Decoder(TopicList).decode
channel_list = Decoder(ChannelList).decode
producer_list = Decoder(ProducerList).decode
info = Decoder(Info).decode
stats = Decoder(Stats).decode
raw_stats = Decoder(RawStats).decode
one_topic = Decoder(Topic).decode
encode = msgspec.json.Encoder().encode
