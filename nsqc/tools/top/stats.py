"""The parts of /stats that top needs, and the changes between two answers of a node."""

from __future__ import annotations

import time
from typing import NamedTuple

from msgspec import Struct

from nsqc.wire.outside import Decoder


class Client(Struct, gc=False):
    """A consumer, as /stats has it."""

    client_id: str = ""
    hostname: str = ""
    remote_address: str = ""
    ready_count: int = 0
    in_flight_count: int = 0
    message_count: int = 0
    finish_count: int = 0
    requeue_count: int = 0
    user_agent: str = ""


class Channel(Struct):
    """A channel, as /stats has it."""

    channel_name: str
    depth: int = 0
    in_flight_count: int = 0
    deferred_count: int = 0
    message_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    client_count: int = 0
    clients: list[Client] | None = None
    paused: bool = False


class Topic(Struct):
    """A topic, as /stats has it."""

    topic_name: str
    channels: list[Channel] | None = None
    depth: int = 0
    message_count: int = 0
    paused: bool = False


class Stats(Struct):
    """/stats."""

    version: str = ""
    health: str = ""
    start_time: int = 0
    topics: list[Topic] | None = None


decode = Decoder(Stats).decode

Key = tuple[str, ...]       # (topic,), (topic, channel), or (topic, channel, address)


class Rates(NamedTuple):
    """Per second."""

    coming: float = 0.0
    going: float = 0.0
    requeued: float = 0.0
    timed_out: float = 0.0


STILL = Rates()


class Sample:
    """One answer of a node. rates: by key, since the previous answer; empty for the first."""

    def __init__(self, node: str, stats: Stats, before: Sample | None):
        self.node, self.stats, self.at = node, stats, time.monotonic()
        self.counts: dict[Key, tuple[int, int, int, int]] = {}
        self.rates: dict[Key, Rates] = {}
        for topic in stats.topics or ():
            self.counts[topic.topic_name,] = (topic.message_count, 0, 0, 0)
            for channel in topic.channels or ():
                held = channel.depth + channel.in_flight_count + channel.deferred_count
                self.counts[topic.topic_name, channel.channel_name] = (
                    channel.message_count, channel.message_count - held, channel.requeue_count, channel.timeout_count)
                for client in channel.clients or ():
                    self.counts[topic.topic_name, channel.channel_name, client.remote_address] = (
                        client.message_count, client.finish_count, client.requeue_count, 0)
        if before is not None and before.stats.start_time == stats.start_time:
            seconds = max(self.at - before.at, 1e-3)
            for key, counts in self.counts.items():
                earlier = before.counts.get(key)
                if earlier is not None and earlier != counts:
                    # A topic emptied or created again counts from 0: no rate is below it.
                    self.rates[key] = Rates(*(max(now - then, 0) / seconds
                                              for now, then in zip(counts, earlier, strict=True)))
