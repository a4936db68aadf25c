"""Finds what needs attention, by rules over the fleet at one moment. docs/admin.md names each rule."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from nsqc.admin.fleet import ChannelRow, Moment, NodeRow, TopicRow
from nsqc.admin.history import History

STILL_S = 60.0          # without a FIN, though there are consumers
ALONE_S = 60.0          # without a consumer
GROWING = 1000          # messages
GROWING_POINTS = 7      # of the hour's 30: 14 minutes
LATE_S = 60.0           # of a bucket
LOW_DISK = 0.1          # of the disk
BAD, WARN, NOTE = SEVERITIES = ("bad", "warn", "note")
MOST = 500
NOT_OK = ("", "OK")
DEAD = ".dead"          # default suffix of a dead-letter topic's name


class Concern(Struct, frozen=True, gc=False):
    """One entry of the list. rule: its name in docs/admin.md; since: unix seconds, 0: unknown."""

    rule: str
    severity: str
    text: str
    topic: str = ""
    channel: str = ""
    node: str = ""
    since: float = 0.0


class Concerns(Struct, frozen=True, gc=False):
    """The list, the worst first, and how many there are by severity."""

    listed: list[Concern]
    counts: dict[str, int]


class Finding:
    """The concerns found so far."""

    def __init__(self) -> None:
        self._found: dict[str, list[Concern]] = {severity: [] for severity in SEVERITIES}
        self._counts = dict.fromkeys(SEVERITIES, 0)

    def add(self, concern: Concern | None) -> None:
        """One more; None: nothing."""
        if concern is None:
            return
        self._counts[concern.severity] += 1
        if len(self._found[concern.severity]) < MOST:
            self._found[concern.severity].append(concern)

    def result(self) -> Concerns:
        """All of them."""
        return Concerns([each for severity in SEVERITIES for each in self._found[severity]][:MOST], self._counts)


def look(moment: Moment, history: History, lookup_errors: dict[str, str]) -> Iterator[Concern | None]:
    """All concerns; None now and then, when others may run."""
    for address, error in lookup_errors.items():
        yield Concern("lookup-down", BAD, f"Lookup server {address} does not answer: {error}", node=address)
    for node in moment.nodes.values():
        yield from _of_node(node)
    if moment.rules_fault:
        yield Concern("rules-differ", WARN, f"The nodes keep the rules that --rules had before: {moment.rules_fault}")
    yield from _versions(moment)
    for number, topic in enumerate(moment.topics.values()):
        if number % 64 == 63:
            yield None
        yield from _of_topic(topic, moment)
        for channel in topic.channels.values():
            yield from _of_channel(channel, moment.at, history)


def _of_node(node: NodeRow) -> Iterator[Concern]:
    if node.error:
        yield Concern("node-missing", BAD, f"Node {node.address} does not answer: {node.error}", node=node.address,
                      since=node.missing_since)
        return
    if not node.listed:
        yield Concern("node-unlisted", WARN, f"Node {node.address} answers, but no lookup server lists it",
                      node=node.address, since=node.missing_since)
    if node.health not in NOT_OK:
        yield Concern("unhealthy", BAD, f"Node {node.address} is not healthy: {node.health}", node=node.address)
    if node.disk_size > 0 and node.disk_free >= 0:
        share = node.disk_free / node.disk_size
        if share < LOW_DISK or node.disk_free < 2 * node.disk_limit:
            severity = BAD if node.disk_free < node.disk_limit or share < LOW_DISK / 2 else WARN
            yield Concern("disk-low", severity, f"Node {node.address} has {share:.0%} of its disk free",
                          node=node.address)
    if node.bucket.get("fenced"):
        yield Concern("bucket-fenced", BAD, f"Another process has taken over node {node.address}, which ends",
                      node=node.address)
    if (late := node.bucket.get("lag_seconds", 0.0)) > LATE_S:
        yield Concern("bucket-lags", BAD, f"Node {node.address}: its bucket lacks the last {late:,.0f} s, "
                      f"{node.bucket.get('lag_bytes', 0.0):,.0f} bytes", node=node.address)
    if node.drift:
        yield Concern("rules-differ", WARN, f"Node {node.address}: {node.drift}", node=node.address)
    if node.draining:
        yield Concern("draining", NOTE, f"Node {node.address} drains", node=node.address)


def _versions(moment: Moment) -> Iterator[Concern]:
    versions: dict[str, int] = {}
    for node in moment.nodes.values():
        if not node.error and node.version:
            shown = f"{node.version} (nsqc {node.nsqc})" if node.nsqc else node.version
            versions[shown] = versions.get(shown, 0) + 1
    if len(versions) > 1:
        listed = ", ".join(f"{version} on {count}" for version, count in sorted(versions.items()))
        yield Concern("versions", NOTE, f"Nodes run different versions: {listed}")


def _of_topic(topic: TopicRow, moment: Moment) -> Iterator[Concern]:
    if topic.stale and topic.stale == topic.nodes:
        return      # its nodes are missing, which is the concern
    if topic.damaged:
        yield Concern("damage", BAD, f"{topic.damaged:,} damaged messages in the log of {topic.name}", topic=topic.name)
    if topic.unread_since and moment.at - topic.unread_since >= ALONE_S:
        text = f"{messages(topic.depth - topic.stale_depth)} in {topic.name}"
        if topic.name.endswith(DEAD) or topic.name in moment.feeders:   # for a decision, and not for a channel
            text = text.replace("message", "dead letter", 1)
            yield Concern("dead-letters", WARN, f"{text}, to be redriven or dropped", topic.name,
                          since=topic.unread_since)
        else:
            yield Concern("no-channel", WARN, f"{text}, which has no channel", topic.name, since=topic.unread_since)
    if topic.paused:
        yield Concern("paused", NOTE, f"Topic {topic.name} is paused", topic=topic.name)


def _of_channel(row: ChannelRow, now: float, history: History) -> Iterator[Concern]:
    if row.stale and row.stale == row.nodes:
        return      # as above
    depth, in_flight = row.depth - row.stale_depth, row.in_flight - row.stale_in_flight
    if row.paused:
        yield Concern("paused", NOTE, f"Channel {row.topic}/{row.name} is paused", row.topic, row.name)
    elif row.clients and row.still_since and now - row.still_since >= STILL_S:
        yield Concern("stuck", BAD, f"{row.topic}/{row.name}: {messages(depth)}, {in_flight:,} in flight, and "
                      f"{row.clients} consumer{' finishes' if row.clients == 1 else 's finish'} none",
                      row.topic, row.name, since=row.still_since)
    elif row.alone_since and now - row.alone_since >= ALONE_S:
        yield Concern("no-consumer", WARN, f"{row.topic}/{row.name}: {messages(depth)} and no consumer",
                      row.topic, row.name, since=row.alone_since)
    elif depth >= GROWING and history.grows((row.topic, row.name), GROWING_POINTS):
        yield Concern("growing", WARN, f"{row.topic}/{row.name}: {messages(depth)}, more and more for 14 minutes",
                      row.topic, row.name)


def messages(count: int) -> str:
    """1 message waits, 2,000 messages wait."""
    return "1 message waits" if count == 1 else f"{count:,} messages wait"
