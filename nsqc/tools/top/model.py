"""The data of the screen: rows summed up over nodes, with rates and their history."""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from nsqc.tools.top.sampling import Sampler
from nsqc.tools.top.stats import STILL, Key, Sample
from nsqc.wire.stats import ChannelStats, figures_of

HISTORY = 24        # rates per sparkline
COLUMNS = {field: figure.column for field, figure in figures_of(ChannelStats).items() if figure.column}   # titles
GONE_S = 3.0        # times the interval: after this long without an answer, a node's numbers no longer count


class Row(NamedTuple):
    """A line of a view. values: by column; key: its topic, channel or client."""

    key: Key
    values: dict[str, float | str]
    history: tuple[float, ...] = ()
    paused: bool = False


class Totals(NamedTuple):
    """Over all nodes."""

    nodes: int
    silent: int
    topics: int
    channels: int
    coming: float
    going: float
    depth: int


class Model:
    """The latest answers of all nodes."""

    def __init__(self, sampler: Sampler):
        self._sampler = sampler
        self._samples: dict[str, Sample] = {}
        self._history: dict[Key, deque[float]] = {}
        self._next_tick = 0.0
        self._health: tuple[frozenset[str], dict[str, str]] = (frozenset(), {})     # nodes up; errors of others

    def take(self) -> bool:
        """Takes new answers; returns whether anything is new, including a node gone silent."""
        arrived = False
        while self._sampler.arrived:
            sample = self._sampler.arrived.popleft()
            self._samples[sample.node] = sample
            arrived = True
        now = time.monotonic()
        if arrived and now >= self._next_tick:
            self._next_tick = now + self._sampler.interval * 0.9
            self._tick()
        before, self._health = self._health, (frozenset(sample.node for sample in self._live()),
                                              dict(self._sampler.errors))
        return arrived or before != self._health

    def _live(self) -> list[Sample]:
        """Answers of the responding nodes."""
        known = {node.http for node in self._sampler.nodes}
        oldest = time.monotonic() - GONE_S * self._sampler.interval - self._sampler.cluster.timeout
        return [sample for sample in self._samples.values() if sample.node in known and sample.at > oldest
                and sample.node not in self._sampler.errors]

    def _tick(self) -> None:
        """Adds a point to the history of all rates. Idle ones have none."""
        sums: dict[Key, float] = {}
        for sample in self._live():
            for key, rates in sample.rates.items():
                sums[key] = sums.get(key, 0.0) + rates.coming
        for key in sums:
            if key not in self._history:
                self._history[key] = deque(maxlen=HISTORY)
        for key, history in list(self._history.items()):
            history.append(sums.get(key, 0.0))
            if not any(history):
                del self._history[key]

    # ------------------------------------------------------------------ rows

    def topics(self) -> list[Row]:
        """A row for each topic."""
        sums: dict[str, dict[str, float | str]] = {}
        channels: dict[str, set[str]] = {}
        paused: dict[str, bool] = {}
        for sample in self._live():
            for topic in sample.stats.topics or ():
                name = topic.topic_name
                row = sums.get(name)
                if row is None:
                    row = sums[name] = {"topic": name, "in": 0.0, "depth": 0.0, "held": 0.0, "messages": 0.0}
                    channels[name] = set()
                add(row, "in", sample.rates.get((name,), STILL).coming)
                add(row, "depth", topic.depth)
                add(row, "messages", topic.message_count)
                if topic.publish_ids is not None:
                    add(row, "ids", topic.publish_ids)
                    add(row, "repeats", topic.deduplicated or 0)
                    add(row, "forgotten", topic.forgotten_ids or 0)
                for channel in topic.channels or ():
                    channels[name].add(channel.channel_name)
                    add(row, "held", channel.held)
                paused[name] = paused.get(name, False) or topic.paused
        return [Row((name,), {**row, "channels": float(len(channels[name])), "oldest": self.age((name,))},
                    self.history((name,)), paused[name]) for name, row in sums.items()]

    def channels(self, topic: str = "") -> list[Row]:
        """A row for each channel, or those of a topic."""
        sums: dict[Key, dict[str, float | str]] = {}
        paused: dict[Key, bool] = {}
        for sample in self._live():
            for one in sample.stats.topics or ():
                if topic and one.topic_name != topic:
                    continue
                for channel in one.channels or ():
                    key = (one.topic_name, channel.channel_name)
                    row = sums.get(key)
                    if row is None:
                        row = sums[key] = {"topic": key[0], "channel": key[1]}
                    rates = sample.rates.get(key, STILL)
                    for name, number in (("in", rates.coming), ("out", rates.going), ("depth", channel.depth),
                                         ("in flight", channel.in_flight_count), ("deferred", channel.deferred_count),
                                         ("requeued", rates.requeued), ("timed out", rates.timed_out),
                                          ("clients", channel.consumers),
                                          *((field, getattr(channel, field)) for field in COLUMNS)):
                        add(row, name, number)
                    row["rules"] = " ".join(f"{rule}={value}" for rule, value in (channel.rules or {}).items())
                    paused[key] = paused.get(key, False) or channel.paused
        return [Row(key, {**row, "oldest": self.age(key)}, self.history(key), paused[key]) for key, row in sums.items()]

    def clients(self, topic: str = "", channel: str = "") -> list[Row]:
        """A row for each consumer, or those of a channel."""
        rows = []
        for sample in self._live():
            for one in sample.stats.topics or ():
                for its in one.channels or ():
                    if (topic and one.topic_name != topic) or (channel and its.channel_name != channel):
                        continue
                    for client in its.clients or ():
                        key = (one.topic_name, its.channel_name, client.remote_address)
                        rates = sample.rates.get(key, STILL)
                        rows.append(Row(key, {
                            "client": client.client_id, "host": client.hostname, "address": client.remote_address,
                            "topic": key[0], "channel": key[1], "in": rates.coming, "out": rates.going,
                            "ready": float(client.ready_count), "in flight": float(client.in_flight_count),
                            "requeued": rates.requeued, "agent": client.user_agent}, self.history(key)))
        return rows

    def nodes(self) -> list[Row]:
        """A row per node, including those that do not answer."""
        live = {sample.node: sample for sample in self._live()}
        rows = []
        for node in self._sampler.nodes:
            sample = live.get(node.http)
            error = self._sampler.errors.get(node.http, "")
            if sample is None:
                reason = error.removeprefix(f"{node.http}: ") or "no answer yet"
                rows.append(Row((node.http,), {"node": node.http, "error": reason}))
                continue
            topics = sample.stats.topics or []
            channels = [channel for topic in topics for channel in topic.channels or ()]
            coming, going = flow(sample)
            rows.append(Row((node.http,), {
                "node": node.http, "version": sample.stats.version, "health": sample.stats.health,
                "topics": float(len(topics)), "channels": float(len(channels)),
                "clients": float(sum(channel.consumers for channel in channels)),
                "in": coming, "out": going,
                "depth": float(sum(topic.depth for topic in topics) + sum(channel.depth for channel in channels)),
                "up": max(time.time() - sample.stats.start_time, 0.0)}))
        return rows

    def totals(self) -> Totals:
        """Totals for the first line."""
        topics: set[str] = set()
        channels: set[Key] = set()
        coming = going = 0.0
        depth = 0
        live = self._live()
        for sample in live:
            for topic in sample.stats.topics or ():
                topics.add(topic.topic_name)
                depth += topic.depth
                for channel in topic.channels or ():
                    channels.add((topic.topic_name, channel.channel_name))
                    depth += channel.depth
            its_coming, its_going = flow(sample)
            coming += its_coming
            going += its_going
        nodes = len(self._sampler.nodes)
        return Totals(nodes, nodes - len(live), len(topics), len(channels), coming, going, depth)

    def history(self, key: Key) -> tuple[float, ...]:
        """Rates so far, the newest last."""
        return tuple(self._history.get(key, ()))

    def age(self, key: Key) -> float:
        """Age of the oldest waiting message in seconds; below 0: unknown, or none waits."""
        known = [at for node in self._sampler.nodes if (at := self._sampler.ages.get((node.http, key))) is not None]
        return max(time.time() - min(known), 0.0) if known else -1.0


def add(row: dict[str, float | str], name: str, number: float) -> None:
    """Adds to a sum."""
    before = row.get(name, 0.0)
    row[name] = (before if isinstance(before, float) else 0.0) + number


def flow(sample: Sample) -> tuple[float, float]:
    """Messages into a node's topics, and out of its channels, per second."""
    coming = sum(rates.coming for key, rates in sample.rates.items() if len(key) == 1)
    return coming, sum(rates.going for key, rates in sample.rates.items() if len(key) == 2)
