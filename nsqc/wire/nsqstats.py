"""Decoders for /stats of an nsqd: as a whole, topic by topic, or names alone."""

from __future__ import annotations

from msgspec import Raw, Struct

from nsqc.wire.outside import Decoder
from nsqc.wire.stats import Name, TopicStats


class Stats(Struct, gc=False):
    """/stats."""

    version: str = ""
    health: str = ""
    start_time: int = 0
    topics: list[TopicStats] | None = None


class RawStats(Struct, gc=False):
    """/stats whose topics are decoded one by one: all at once would take an event loop too long."""

    version: str = ""
    health: str = ""
    start_time: int = 0
    topics: list[Raw] | None = None


class NamedTopic(Struct, gc=False):
    """A topic by its name alone."""

    topic_name: Name


class Names(Struct, gc=False):
    """/stats without the statistics: a fifth of the work."""

    topics: list[NamedTopic] | None = None


stats = Decoder(Stats).decode
names = Decoder(Names).decode
raw_stats = Decoder(RawStats).decode
one_topic = Decoder(TopicStats).decode
