"""Checkpoints of queries on logs, and how far the queries lag. Knows no Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias, TypedDict, TypeVar

from nsqc.spark.log.api import LogApi, LogError
from nsqc.spark.log.cluster import Cluster, Snapshot
from nsqc.spark.log.ranges import Place, count

# ====================================================================== checkpoint
# The offset of a stream of logs, as stored in checkpoints. Knows no Spark.
#
# {"topics": {topic: {node: next offset}}, "joined": {topic: {node: first offset}}, "logs": {topic: {node: id}}}.
# `joined` has the logs that do not continue at the end of the previous batch: new ones, and those that start again. So
# a repeated batch has the same rows.
# `logs` has the ids of logs, as far as known.

T = TypeVar("T")
# Any: JSON
Offset: TypeAlias = dict[str, dict[str, dict[str, Any]]]


def offset_of(ends: Mapping[Place, int], joined: Mapping[Place, int], ids: Mapping[Place, str]) -> Offset:
    """An offset with the end of each log, the start of some, and their ids."""
    return {"topics": nested(ends), "joined": nested(joined),
            "logs": nested({place: log_id for place, log_id in ids.items() if log_id})}


def places_of(offset: Offset, part: str) -> dict[Place, int]:
    """Offsets by place, of `topics` or `joined`. Raises LogError: it may belong to another query."""
    places: dict[Place, int] = _flat(offset, offset.get(part))
    if not all(type(number) is int and 0 <= number < 2**63 for number in places.values()):
        raise unfit(offset)
    return places


def ids_of(offset: Offset) -> dict[Place, str]:
    """The ids of logs. Raises LogError."""
    ids: dict[Place, str] = _flat(offset, offset.get("logs", {}))
    if not all(isinstance(log_id, str) for log_id in ids.values()):
        raise unfit(offset)
    return ids


def moved_to(places: Collection[Place], ids: Mapping[Place, str], there: Mapping[Place, str]) -> dict[Place, Place]:
    """Current places of logs whose nodes have a new address, by their old places; there: the ids at each node. A log
    whose address is taken by another log, and that is not found yet, gets a temporary name until it is found."""
    owners = {(place.topic, log_id): place for place, log_id in there.items() if log_id}
    moved: dict[Place, Place] = {}
    for place in places:
        now = owners.get((place.topic, ids.get(place, "")), place)
        if now != place and ids.get(now) != ids[place]:
            moved[place] = now
    taken = set(moved.values())
    return moved | {place: Place(place.topic, f"{place.node} (log {ids.get(place, '')})") for place in places
                    if place in taken and place not in moved}


def unfit(offset: object) -> LogError:
    """The error for a checkpoint of something other than logs."""
    return LogError(f"nsq: the checkpoint has {json.dumps(offset)[:200]}, not offsets of log-backed topics: it "
                    "belongs to another query, or was changed. Give this query another checkpointLocation")


def _flat(offset: Offset, nested: Mapping[str, Mapping[str, T]] | None) -> dict[Place, T]:
    try:
        if nested is None:
            raise TypeError
        return {Place(topic, node): value for topic, nodes in nested.items() for node, value in nodes.items()}
    except (TypeError, AttributeError):
        raise unfit(offset) from None


def nested(values: Mapping[Place, T]) -> dict[str, dict[str, T]]:
    """By topic and node."""
    found: dict[str, dict[str, T]] = {}
    for place, value in sorted(values.items()):
        found.setdefault(place.topic, {})[place.node] = value
    return found


# ====================================================================== lag
# The lag of a stream of logs: its metrics. Knows no Spark.

# Between two queries for the time of the next message, which cost a call per node with unread messages.
TIMES_SECONDS = 1.0


class PlaceLag(TypedDict):
    """Metrics of the log of a topic at a node."""

    latest: int
    lagRows: int
    lagSeconds: float


class LogMetrics(TypedDict):
    """All metrics of a stream of logs; docs/spark.md describes each."""

    source: str
    lagRows: int
    lagSeconds: float
    lostRows: int
    nsqdDown: dict[str, str]
    logs: dict[str, dict[str, PlaceLag]]


class Lag:
    """Counts from the end of the last planned batch."""

    def __init__(self, source: str = "") -> None:
        """source: its name in metrics."""
        self._source = source
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
        return {"source": self._source, "lagRows": sum(rows.values()),
                "lagSeconds": round(max(self._seconds.values(), default=0.0), 3), "lostRows": self._lost,
                "nsqdDown": self.down, "logs": logs}

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
