"""The offset of a stream of logs, as stored in checkpoints. Knows no Spark.

{"topics": {topic: {node: next offset}}, "joined": {topic: {node: first offset}}, "logs": {topic: {node: id}}}.
`joined` has the logs that do not continue at the end of the previous batch: new ones, and those that start again. So a
repeated batch has the same rows.
`logs` has the ids of logs, as far as known.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias, TypeVar

from nsqc.spark.log.errors import LogError
from nsqc.spark.log.ranges import Place

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
