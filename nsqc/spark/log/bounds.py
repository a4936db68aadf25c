"""The start and end of a query in each log, from options. Knows no Spark."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set

from nsqc.spark.log.cluster import Cluster, Snapshot
from nsqc.spark.log.errors import DataLoss, LogError
from nsqc.spark.log.ranges import Place
from nsqc.spark.options import Log, LogTable
from nsqc.spark.values import EARLIEST, LATEST, Places, Times

log = logging.getLogger("nsqc.spark")

MS = 1_000_000
# In the JSON of options, as in Kafka's.
LATEST_NUMBER, EARLIEST_NUMBER = -1, -2


def starts(options: Log, cluster: Cluster, snapshot: Snapshot, default: str) -> dict[Place, int]:
    """The first offset of each log. Raises LogError."""
    times = _times("startingOffsetsByTimestamp", options.startingTimestamp, options.startingOffsetsByTimestamp,
                   snapshot)
    if times is not None:
        return _at(times, cluster)
    return _places("startingOffsets", options, options.startingOffsets or default, snapshot)


def ends(options: LogTable, cluster: Cluster, snapshot: Snapshot) -> dict[Place, int]:
    """The offset after the last one of each log. Raises LogError."""
    times = _times("endingOffsetsByTimestamp", options.endingTimestamp, options.endingOffsetsByTimestamp, snapshot)
    if times is not None:
        return _at(times, cluster)
    return _places("endingOffsets", options, options.endingOffsets or LATEST, snapshot)


def _at(times: Mapping[Place, int], cluster: Cluster) -> dict[Place, int]:
    """The offsets of the first messages at or after these times, in milliseconds."""
    return cluster.each(times, lambda api, place: api.offset_at(place.topic, times[place] * MS))


def _times(name: str, every: int | None, given: Times | None, snapshot: Snapshot) -> dict[Place, int] | None:
    """The time for each log; None: not in the options. Raises LogError."""
    if given is None:
        return None if every is None else dict.fromkeys(snapshot.states, every)
    times: dict[Place, int] = {}
    for topic, time in given.items():
        if isinstance(time, dict):
            times |= {Place(topic, node): ms for node, ms in time.items()}
        else:
            nodes = [place.node for place in snapshot.states if place.topic == topic]
            times |= {Place(topic, node): time for node in nodes or ["any node"]}
    _covered(name, times.keys(), snapshot, "a time in ms since 1970")
    return times


def _covered(name: str, given: Set[Place], snapshot: Snapshot, what: str) -> None:
    """Raises LogError unless these are all logs."""
    states = snapshot.states
    if unknown := sorted(given - states.keys()):
        known = ", ".join(f"{place.topic} at {place.node}" for place in sorted(states)) or "none"
        raise LogError(f"nsq: option {name} names topic {unknown[0].topic} at {unknown[0].node}, where there is no "
                       f"such log; there are {known}")
    if missing := sorted(states.keys() - given):
        raise LogError(f"nsq: option {name} has no entry for topic {missing[0].topic} at {missing[0].node}: give "
                       f"{what}")


def _places(name: str, options: Log, where: Places, snapshot: Snapshot) -> dict[Place, int]:
    states = snapshot.states
    if where == EARLIEST:
        return {place: state.first for place, state in states.items()}
    if where == LATEST:
        return {place: state.next for place, state in states.items()}
    assert isinstance(where, dict)
    given = {Place(topic, node): offset for topic, nodes in where.items() for node, offset in nodes.items()}
    _covered(name, given.keys(), snapshot, "an offset, -2 for earliest or -1 for latest")
    return {place: _checked(name, options, place, offset, snapshot) for place, offset in given.items()}


def _checked(name: str, options: Log, place: Place, offset: int, snapshot: Snapshot) -> int:
    """An existing offset, or the end."""
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
    log.warning("%s: using %d instead (failOnDataLoss=false)", error, nearest)
    return nearest
