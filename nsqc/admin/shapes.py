"""Answers of lookup servers and /info of nodes, as far as the admin server reads them; absent fields have defaults."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from nsqc.net.remote import join_address
from nsqc.wire.outside import Decoder
from nsqc.wire.stats import Name


class Producer(Struct, gc=False):
    """A node in an answer of nsqlookupd; in /nodes with its topics and a flag for each."""

    remote_address: str = ""
    hostname: str = ""
    broadcast_address: str = ""
    tcp_port: int = 0
    http_port: int = 0
    version: str = ""
    topics: list[Name] | None = None
    tombstones: list[bool] | None = None
    authorised: bool = False    # the access file of an nsqc lookupd vouches for its address

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

    topics: list[Name] | None = None


class ChannelList(Struct, gc=False):
    """/channels."""

    channels: list[Name] | None = None


class ProducerList(Struct, gc=False):
    """/nodes and /lookup."""

    producers: list[Producer] | None = None
    channels: list[Name] | None = None


class Info(Struct, gc=False):
    """/info of an nsqd."""

    version: str = ""
    broadcast_address: str = ""
    hostname: str = ""
    http_port: int = 0
    tcp_port: int = 0
    start_time: int = 0


topic_list = Decoder(TopicList).decode
channel_list = Decoder(ChannelList).decode
producer_list = Decoder(ProducerList).decode
info = Decoder(Info).decode
encode = msgspec.json.Encoder().encode
