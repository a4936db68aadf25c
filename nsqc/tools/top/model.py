"""The data of the screen: rows summed up over nodes, with rates and their history."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from nsqc.client.connection import Waker
from nsqc.client.errors import ClientError
from nsqc.tools.cluster import BadStatus, Cluster, Node, NodeHttp
from nsqc.tools.declare import ToolError
from nsqc.wire.stats import ChannelStats, Stats, figures_of

# ====================================================================== stats
# Samples of /stats, and what has changed from one answer of a node to the next.

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


# ====================================================================== sampling
# Queries nodes in the background: one thread per node, so a hanging one delays neither the others nor the screen.

FIND_S = 15.0           # between two nsqlookupd queries
MOST_ASKED = 24         # ages of oldest messages queried per round
NOT_KNOWN = (404, 405)


class Sampler(Waker):
    """interval: seconds between two rounds, may be changed. The main thread takes the results; wake() notifies it."""

    def __init__(self, cluster: Cluster, interval: float):
        super().__init__()
        self.cluster, self.interval = cluster, interval
        self.with_clients = False
        self.wanted: list[Key] = []         # topics and channels whose oldest message is shown
        self.arrived: deque[Sample] = deque()
        self.errors: dict[str, str] = {}    # by node
        self.ages: dict[tuple[str, Key], float] = {}    # publish time of the oldest message, unix seconds
        self.nodes: list[Node] = []
        self.reports: deque[str] = deque()  # results of actions
        self._hurry = threading.Event()
        self._closing = False
        self._started: set[str] = set()

    def start(self, nodes: list[Node]) -> None:
        """Starts with these nodes."""
        self._use(nodes)
        if self.cluster.nsqlookupd:
            threading.Thread(target=self._find, daemon=True).start()

    def _use(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        for node in nodes:
            if node.http not in self._started:
                self._started.add(node.http)
                threading.Thread(target=self._ask, args=(node,), daemon=True).start()

    def hurry(self) -> None:
        """Queries all nodes now."""
        self._hurry.set()

    def close(self) -> None:
        """Threads end on their own, or with the process."""
        super().close()
        self._closing = True
        self._hurry.set()

    # ------------------------------------------------------------------ threads

    def _find(self) -> None:
        while not self._closing:
            time.sleep(FIND_S)
            with suppress(ToolError, ClientError):
                self._use(self.cluster.nodes())

    def _ask(self, node: Node) -> None:
        api = self.cluster.http(node)
        before: Sample | None = None
        knows_peek = True
        while not self._closing:
            began = time.monotonic()
            if node in self.nodes:
                try:
                    before = self._sample(api, node, before)
                    self.errors.pop(node.http, None)
                    if knows_peek:
                        knows_peek = self._ask_ages(api, node, before)
                except Exception as error:      # any error: this thread retries
                    self.errors[node.http] = str(error) or type(error).__name__
                    knows_peek = True
                self.wake()
            self._hurry.wait(max(self.interval - (time.monotonic() - began), 0.05))
            if self._hurry.is_set():
                # All threads see it: the longest sleeper has 50 ms for that.
                time.sleep(0.05)
                self._hurry.clear()

    def _sample(self, api: NodeHttp, node: Node, before: Sample | None) -> Sample:
        stats = api.stats(include_clients="true" if self.with_clients else "false")
        sample = Sample(node.http, stats, before)
        self.arrived.append(sample)
        self.wake()
        return sample

    def _ask_ages(self, api: NodeHttp, node: Node, sample: Sample) -> bool:
        """Publish times of the oldest messages shown; False: the node does not report them."""
        waiting: dict[Key, int] = {(topic.topic_name,): topic.depth for topic in sample.stats.topics or ()}
        waiting |= {(topic.topic_name, channel.channel_name): channel.depth for topic in sample.stats.topics or ()
                    for channel in topic.channels or ()}
        for key in self.wanted[:MOST_ASKED]:
            if not waiting.get(key):
                self.ages.pop((node.http, key), None)
                continue
            arguments = {"topic": key[0], "max_messages": "1", "body": "none"}
            if len(key) > 1:
                arguments["channel"] = key[1]
            try:
                page = api.get("/channel/peek" if len(key) > 1 else "/topic/peek", arguments)
            except BadStatus as error:
                if error.status in NOT_KNOWN and error.message == "NOT_FOUND":
                    return False
                continue
            if page["messages"]:
                self.ages[node.http, key] = page["messages"][0]["timestamp"] / 1e9
        return True

    def act(self, text: str, call: Callable[[NodeHttp], object]) -> None:
        """Makes a call on all nodes, in the background, and reports the result."""

        def work() -> None:
            failures = []
            for node in list(self.nodes):
                api = self.cluster.http(node)
                try:
                    call(api)
                except (ToolError, ClientError) as error:
                    if not (isinstance(error, BadStatus) and error.message in ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND")):
                        failures.append(str(error))
                finally:
                    api.close()
            self.reports.append("; ".join(failures) if failures else text)
            self.hurry()
            self.wake()

        threading.Thread(target=work, daemon=True).start()


# ====================================================================== model

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
