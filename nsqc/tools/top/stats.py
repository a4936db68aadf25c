"""Samples of /stats, and what has changed from one answer of a node to the next."""

from __future__ import annotations

import time
from typing import NamedTuple

from nsqc.wire.nsqstats import Stats

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
                self.counts[topic.topic_name, channel.channel_name] = (
                    channel.message_count, channel.message_count - channel.held, channel.requeue_count,
                    channel.timeout_count)
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
