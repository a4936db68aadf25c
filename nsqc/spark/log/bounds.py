"""Where a query begins and ends in each log, as options say it. Knows no Spark."""

from __future__ import annotations

import logging

from nsqc.spark.log.cluster import Cluster, Snapshot
from nsqc.spark.log.errors import DataLoss, LogError
from nsqc.spark.log.ranges import Place
from nsqc.spark.options import Log
from nsqc.spark.values import EARLIEST, LATEST, Places

log = logging.getLogger("nsqc.spark")

MS = 1_000_000
# In the JSON of options, as Kafka's users know them.
LATEST_NUMBER, EARLIEST_NUMBER = -1, -2


def starts(options: Log, cluster: Cluster, snapshot: Snapshot, default: str) -> dict[Place, int]:
    """The first offset of each log. Raises LogError."""
    return _places("startingOffsets", options, options.startingOffsets or default, options.startingTimestamp, cluster,
                   snapshot)


def ends(options: Log, cluster: Cluster, snapshot: Snapshot, where: Places | None, time_ms: int | None
         ) -> dict[Place, int]:
    """The offset behind the last one of each log. Raises LogError."""
    return _places("endingOffsets", options, where or LATEST, time_ms, cluster, snapshot)


def _places(name: str, options: Log, where: Places, time_ms: int | None, cluster: Cluster, snapshot: Snapshot
            ) -> dict[Place, int]:
    states = snapshot.states
    if time_ms is not None:
        return cluster.each(states, lambda api, place: api.offset_at(place.topic, time_ms * MS))
    if where == EARLIEST:
        return {place: state.first for place, state in states.items()}
    if where == LATEST:
        return {place: state.next for place, state in states.items()}
    assert isinstance(where, dict)
    given = {Place(topic, node): offset for topic, nodes in where.items() for node, offset in nodes.items()}
    if unknown := sorted(given.keys() - states.keys()):
        known = ", ".join(f"{place.topic} at {place.node}" for place in sorted(states)) or "none"
        raise LogError(f"nsq: option {name} names topic {unknown[0].topic} at {unknown[0].node}, where there is no "
                       f"such log; there are {known}")
    if missing := sorted(states.keys() - given.keys()):
        raise LogError(f"nsq: option {name} says nothing about topic {missing[0].topic} at {missing[0].node}: give an "
                       "offset, -2 for earliest or -1 for latest")
    return {place: _checked(name, options, place, offset, snapshot) for place, offset in given.items()}


def _checked(name: str, options: Log, place: Place, offset: int, snapshot: Snapshot) -> int:
    """An offset that exists, or the end."""
    state = snapshot.states[place]
    if offset == EARLIEST_NUMBER:
        return state.first
    if offset == LATEST_NUMBER or offset == state.next:
        return state.next
    if state.first <= offset < state.next:
        return offset
    error = DataLoss(f"nsq: option {name}: topic {place.topic} at {place.node} has offsets {state.first} to "
                     f"{state.next}, not {offset}")
    if options.failOnDataLoss:
        raise error
    nearest = min(max(offset, state.first), state.next)
    log.warning("%s: %d instead (failOnDataLoss=false)", error, nearest)
    return nearest
