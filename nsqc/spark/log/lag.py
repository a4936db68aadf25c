"""The lag of a stream of logs: its metrics. Knows no Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TypedDict

from nsqc.spark.log.api import LogApi
from nsqc.spark.log.cluster import Cluster, Snapshot
from nsqc.spark.log.errors import LogError
from nsqc.spark.log.ranges import Place, count

# Between two queries for the time of the next message, which cost a call per node with unread messages.
TIMES_SECONDS = 1.0


class PlaceLag(TypedDict):
    """Metrics of the log of a topic at a node."""

    latest: int
    lagRows: int
    lagSeconds: float


class LogMetrics(TypedDict):
    """All metrics of a stream of logs; docs/spark.md describes each."""

    lagRows: int
    lagSeconds: float
    lostRows: int
    nsqdDown: dict[str, str]
    logs: dict[str, dict[str, PlaceLag]]


class Lag:
    """Counts from the end of the last planned batch."""

    def __init__(self) -> None:
        self.down: dict[str, str] = {}
        self._ends: dict[Place, int] = {}
        self._lost = 0
        self._seconds: dict[Place, float] = {}
        self._looked = 0.0

    def planned(self, ends: Mapping[Place, int], snapshot: Snapshot) -> None:
        """A batch ends there, or would if it were large enough."""
        self._ends = {place: end for place, end in ends.items() if place in snapshot.states}

    def lost(self, messages: int) -> None:
        """Counts ignored messages."""
        self._lost += messages

    def metrics(self, cluster: Cluster, snapshot: Snapshot) -> LogMetrics:
        """The metrics for StreamingQueryProgress."""
        rows = {place: count(snapshot.states[place].segments, end, snapshot.states[place].next)
                for place, end in self._ends.items() if place in snapshot.states}
        now = time.monotonic()
        if now - self._looked >= TIMES_SECONDS or any(not behind and self._seconds.get(place) for place, behind
                                                      in rows.items()):
            self._looked = now
            self._seconds = self._ages(cluster, snapshot, rows)
        logs: dict[str, dict[str, PlaceLag]] = {}
        for place, behind in sorted(rows.items()):
            logs.setdefault(place.topic, {})[place.node] = {
                "latest": snapshot.states[place].next, "lagRows": behind,
                "lagSeconds": round(self._seconds.get(place, 0.0) if behind else 0.0, 3)}
        return {"lagRows": sum(rows.values()), "lagSeconds": round(max(self._seconds.values(), default=0.0), 3),
                "lostRows": self._lost, "nsqdDown": self.down, "logs": logs}

    def _ages(self, cluster: Cluster, snapshot: Snapshot, rows: Mapping[Place, int]) -> dict[Place, float]:
        """The age of each log's next message. A node that does not answer is not queried for its other topics: each
        would cost a timeout, which delays the stream."""
        ages: dict[Place, float] = dict.fromkeys(rows, 0.0)
        silent: set[str] = set()
        for place, behind in rows.items():
            if not behind:
                continue
            if place.node not in silent:
                try:
                    ages[place] = age(cluster.api(place.node), place.topic, self._ends[place],
                                      snapshot.states[place].last_time)
                    continue
                except LogError:
                    silent.add(place.node)
            ages[place] = self._seconds.get(place, 0.0)
        return ages


def age(api: LogApi, topic: str, offset: int, last_time: int | None) -> float:
    """The age of the message at an offset, in seconds; also measured by the last message's time, as the node's clock
    may be ahead. Raises LogError."""
    stamp = api.time_of(topic, offset)
    return 0.0 if stamp is None else max(time.time_ns() - stamp, (last_time or stamp) - stamp, 0) / 1e9
