"""Decoders for /stats of an nsqd: as a whole, topic by topic, or names alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, pairwise

from msgspec import Raw, Struct

from nsqc.wire.outside import Decoder, JSONError
from nsqc.wire.stats import Name, TopicStats

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
        raise JSONError("topics are no list")
    return found
