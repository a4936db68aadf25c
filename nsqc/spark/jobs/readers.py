"""The readers of a cluster's logs, and their lag: channels, and queries identified by their checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from nsqc.spark.jobs import topics
from nsqc.spark.jobs.checkpoints import Checkpoint
from nsqc.spark.jobs.nodes import AT_ONCE, Holding, NodeApi, Nodes
from nsqc.spark.jobs.running import JobError
from nsqc.spark.log import ranges
from nsqc.spark.log.api import State
from nsqc.spark.log.checkpoint import moved_to
from nsqc.spark.log.errors import NoLog, NoTopic, Unreachable
from nsqc.spark.log.lag import age
from nsqc.spark.log.ranges import Place

CHANNEL, QUERY = "channel", "query"


class Reader(NamedTuple):
    """A channel or a query at the log of a topic at a node. Offsets; None: unknown, or not started. lag_seconds: the
    age of the oldest unread message."""

    topic: str
    nsqd: str
    kind: str
    name: str
    position: int | None
    latest: int | None
    lag_messages: int | None
    lag_seconds: float | None


class Found(NamedTuple):
    """The contents of nodes, and those that do not answer."""

    logs: dict[Place, Holding]
    down: dict[str, str]
    in_memory: set[str]


def look(nodes: Nodes, names: tuple[str, ...]) -> Found:
    """The logs of these topics, or of all. Raises JobError for a given topic that no node has and if there are no logs
    at all, NoLog for a given topic in memory."""
    found = Found({}, dict(nodes.down), set())
    refused: list[str] = []

    def ask(node: str, api: NodeApi) -> None:
        for name in names or api.topics():
            try:
                found.logs[Place(name, node)] = api.holding(name)
            except NoTopic:
                continue
            except NoLog as error:
                if names:
                    raise
                found.in_memory.add(name)
                refused.append(str(error))

    def try_to_ask(node: str) -> None:
        try:
            ask(node, nodes.apis[node])
        except Unreachable as error:
            found.down[node] = str(error)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(try_to_ask, nodes.apis))
    for name in names:
        if not found.down and all(place.topic != name for place in found.logs):
            known = {topic for api in nodes.apis.values() for topic in api.topics()}
            raise JobError(f"no topic {name}; {topics.choice('topics', name, known)}")
    if not found.logs:
        raise JobError(refused[0] if refused else "; ".join(found.down.values()) or "there are no topics")
    return found


def channels(logs: Mapping[Place, Holding]) -> list[Reader]:
    """All channels."""
    return [Reader(place.topic, place.node, CHANNEL, channel["channel_name"], channel["position"], held.log.next,
                   channel["lag_messages"], channel["lag_seconds"])
            for place, held in sorted(logs.items()) for channel in held.channels]


def query(name: str, known: Checkpoint, names: tuple[str, ...], found: Found, nodes: Nodes,
          note: Callable[[str], None]) -> list[Reader]:
    """A query at all logs of its topics, including those not started yet. Raises JobError if it reads none of the
    topics, Unreachable."""
    if known.batch is None:
        raise JobError(f"{name} has no offsets yet: its query has not started a batch")
    if not known.logs:
        raise JobError(f"{name} is the checkpoint of a query that consumes a channel: its lag is that channel's depth"
                       if known.consumes else f"{name} is the checkpoint of a query that reads no log-backed topic")
    reads = {place.topic for place in known.logs}
    wanted = reads & set(names) if names else reads
    if not wanted:
        raise JobError(f"the query of {name} reads {', '.join(sorted(reads))}, not {', '.join(names)}")
    moved = moved_to(known.logs, known.ids, {place: held.log.id for place, held in found.logs.items()})
    positions = {moved.get(place, place): offset for place, offset in known.logs.items()}
    ids = {moved.get(place, place): log_id for place, log_id in known.ids.items()}
    places = sorted({place for place in (*positions, *found.logs) if place.topic in wanted})
    return [at_log(name, place, positions.get(place), ids.get(place, ""),
                   found.logs[place].log if place in found.logs else None, nodes, note) for place in places]


def at_log(name: str, place: Place, position: int | None, log_id: str, log: State | None, nodes: Nodes,
           note: Callable[[str], None]) -> Reader:
    """A query at one log. position: None if it has not started there; log_id: of the log it has read there, if
    known."""
    if log is None:
        note(f"{name} has read topic {place.topic} at {place.node}, where it no longer exists")
        return Reader(*place, QUERY, name, position, None, None, None)
    if position is not None and (position > log.next or (log.id and log_id not in ("", log.id))):
        note(f"{name} has read topic {place.topic} at {place.node} until offset {position}, but it ends at {log.next}: "
             "it was deleted and created again, or its files were replaced")
        return Reader(*place, QUERY, name, position, log.next, None, None)
    if position is not None and position < log.first:
        note(f"{name} has read topic {place.topic} at {place.node} until offset {position}, but it begins at "
             f"{log.first}: retention has removed the messages in between")
    start = log.first if position is None else max(position, log.first)
    behind = ranges.count(log.segments, start, log.next)
    oldest = age(nodes.apis[place.node], place.topic, start, log.last_time) if behind else 0.0
    return Reader(*place, QUERY, name, position, log.next, behind, oldest)
