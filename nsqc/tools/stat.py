"""`nsqc stat`, and nsq_stat: rates and depths of a channel, a row per interval."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from nsqc.options.option import MS, Kind, Option, S
from nsqc.tools import running
from nsqc.tools.declare import CHANNEL, HTTP_NODES, JSON, TOPIC, Tool, ToolError, Values

if TYPE_CHECKING:
    from nsqc.tools.cluster import Cluster, Node, NodeHttp
    from nsqc.wire.stats import ChannelStats

PLACE = "nsqc stat"
TITLE = "------rate------+----------------depth----------------+--------------metadata---------------"
HEADS = ("ingress", "egress", "total", "mem", "inflt", "def", "req", "t-o", "msgs", "clients")
ROW = "{:>7} {:>7} | {:>7} {:>7} {:>7} {:>5} {:>5} | {:>7} {:>7} {:>12} {:>7}"
ROWS_A_TITLE = 25


class Sums(NamedTuple):
    """A channel's counters summed over its nodes, as in /stats. depth includes messages on disk."""

    depth: int = 0
    backend_depth: int = 0
    in_flight_count: int = 0
    deferred_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    message_count: int = 0
    client_count: int = 0

    def plus(self, channel: ChannelStats) -> Sums:
        """With the channel of one more node."""
        return Sums(*(total + getattr(channel, name) for name, total in zip(self._fields, self, strict=True)))


def titles() -> str:
    """The two header lines."""
    heads = ROW.format(*HEADS[:2], *HEADS[2:4], "disk", *HEADS[4:])
    return f"{TITLE}\n{heads}\n"


def row(now: Sums, before: Sums, seconds: float) -> str:
    """A line of the table."""
    ingress, egress = rates(now, before, seconds)
    return ROW.format(ingress, egress, now.depth, now.depth - now.backend_depth, now.backend_depth, now.in_flight_count,
                      now.deferred_count, now.requeue_count, now.timeout_count, now.message_count, now.client_count)


def rates(now: Sums, before: Sums, seconds: float) -> tuple[int, int]:
    """Messages in and out, per second."""
    came = now.message_count - before.message_count
    return int(came / seconds), int((came - (now.depth - before.depth)) / seconds)


def channel_of(api: NodeHttp, topic: str, channel: str) -> ChannelStats | None:
    """A channel as a node has it; None: it does not. Raises Unreachable, BadStatus."""
    topics = api.stats(topic=topic, channel=channel).topics or ()
    return next((one for found in topics for one in found.channels or () if one.channel_name == channel), None)


def rows(sample: Callable[[], Sums], interval: float, count: int) -> Iterable[tuple[bool, Sums, Sums, float]]:
    """Pairs of samples: whether titles are due, current sums, previous sums, seconds between. count: 0: endless."""
    before, then = sample(), time.monotonic()
    number = 0
    while not count or number < count:
        time.sleep(max(0.0, then + interval - time.monotonic()))
        now, after = sample(), time.monotonic()
        yield number % ROWS_A_TITLE == 0, now, before, after - then
        before, then, number = now, after, number + 1


def run(values: Values) -> int:
    """`nsqc stat`."""
    topic, channel = values.text("TOPIC"), values.text("CHANNEL")
    from nsqc.tools.cluster import Cluster

    cluster = Cluster(values, PLACE)
    cluster.require_channel(topic, channel)
    missing = Missing()
    as_json = values.flag("json")

    def sample() -> Sums:
        return sums(cluster, topic, channel, missing)

    for titles_due, now, before, seconds in rows(sample, values.seconds("interval"), values.number("count")):
        if as_json:
            ingress, egress = rates(now, before, seconds)
            running.as_json({"topic": topic, "channel": channel, "ingress": ingress, "egress": egress, **now._asdict()})
            continue
        running.write((titles() if titles_due else "") + row(now, before, seconds) + "\n")
    return 0


class Missing:
    """Warns once about each node that does not answer, and again after it has answered."""

    def __init__(self) -> None:
        self._now: set[str] = set()
        self._round: set[str] = set()

    def warn(self, text: str) -> None:
        """A node does not answer."""
        self._round.add(text)
        if text not in self._now:
            running.print_error(PLACE, f"{text}; its messages are not counted")

    def next(self) -> None:
        """A round has ended."""
        self._now, self._round = self._round, set()


def sums(cluster: Cluster, topic: str, channel: str, missing: Missing) -> Sums:
    """Over all nodes that answer. Raises NoNode, ToolError."""
    def ask(api: NodeHttp, node: Node) -> ChannelStats | None:
        return channel_of(api, topic, channel)

    found = [one for one in cluster.each(cluster.nodes(topic), ask, missing.warn).values() if one is not None]
    missing.next()
    if not found:
        raise ToolError(f"channel {channel!r} of topic {topic!r} is gone")
    total = Sums()
    for one in found:
        total = total.plus(one)
    return total


TOOL = Tool(
    ("stat",), "Print rates and depths of a channel at intervals.", run,
    options=(
        Option("interval", "time between rows", Kind.DURATION, 2 * S, least=MS),
        Option("count", "stop after this many rows; 0: never", Kind.INT, 0, least=0, short="n"),
        JSON, *HTTP_NODES),
    arguments=(TOPIC, CHANNEL),
    text="""ingress and egress are messages per second since the previous row; depth is the queue, in memory and on
         disk, inflt is in flight, def is deferred; req and t-o count requeues and timeouts since the start of nsqd.
         Nodes are summed up; one that does not answer is reported, and counts again when it does.""",
    examples=(
        ("nsqc stat orders billing", "of the local daemon, every 2 s"),
        ("nsqc stat orders billing --nsqlookupd lookup:4161 --interval 10s --count 6",
         "of all nodes that have the topic, for a minute"),
        ("nsqc stat orders billing --json | jq .ingress", "for a script")))
