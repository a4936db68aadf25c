"""One run of `nsqc to-file` or nsq_to_file, from its plan."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from nsqc.client.errors import BadName
from nsqc.client.options import Options
from nsqc.tools.cluster import Cluster
from nsqc.tools.feed import Feed, check_topics
from nsqc.tools.stopping import Stop
from nsqc.tools.tofile.archive import PIECE_BYTES, Archive, Rules
from nsqc.tools.tofile.engine import Engine, Say
from nsqc.tools.tofile.piece import Piece
from nsqc.tools.tofile.topics import Discovery

MOST_CONNECTIONS = 8


class Plan(NamedTuple):
    """The job; times in seconds. pattern: topics to look for, or None."""

    place: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    refresh: float
    channel: str
    rules: Rules
    sync_interval: float
    max_in_flight: int
    connections: int        # to each nsqd per topic; 0: automatic
    wait: bool


def archive(cluster: Cluster, plan: Plan, say: Say, insists: bool = True) -> int:
    """Returns the exit code. insists: see Feed. Raises ClientError, ToolError."""
    options = Options("to-file", (), cluster.timeout, cluster.connection_options())
    if not plan.connections:
        plan = plan._replace(connections=good_connections(cluster, plan))
    if not plan.wait:
        check_topics(cluster, plan.topics)
    piece = Piece(PIECE_BYTES)

    def archive_of(topic: str) -> Archive:
        return Archive(topic, plan.rules, lambda level, text: say(level, topic, text), piece)

    with Stop() as stop:
        stop.hear_hangup()
        with DiscoveringFeed(cluster, plan, options, stop, partial(say, "warn", ""), insists) as feed:
            feed.start()
            code = Engine(feed, stop, archive_of, plan.sync_interval, say).run()
            return code or stop.code(terminated=0)


def good_connections(cluster: Cluster, plan: Plan) -> int:
    """nsqd limits messages in flight per connection, and those limit the amount per sync."""
    if cluster.nsqlookupd:
        return 2
    return max(1, MOST_CONNECTIONS // (len(cluster.nsqd) * max(len(plan.topics), 1)))


class DiscoveringFeed(Feed):
    """A feed that adds topics as they appear."""

    def __init__(self, cluster: Cluster, plan: Plan, options: Options, stop: Stop, warn: Callable[[str], None],
                 insists: bool):
        super().__init__(cluster, plan.topics, plan.channel, plan.max_in_flight, options, stop, warn, plan.connections,
                         insists)
        self._discovery = (Discovery(cluster, plan.pattern, plan.refresh, warn, stop.wake) if plan.pattern is not None
                           else None)

    def _tend(self, now: float) -> None:
        if self._discovery is not None:
            for topic in self._discovery.found():
                try:
                    self.add(topic)
                except BadName as error:
                    self._say(str(error))
        super()._tend(now)
