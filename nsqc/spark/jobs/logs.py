"""Log-backed topics as input of jobs: checked before Spark starts, then read as frames between fixed offsets.

Fixed, because a job reads a log more than once: to count messages, and to publish or to plot them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import typer

from nsqc.spark.jobs import nodes, topics
from nsqc.spark.jobs.arguments import Cluster
from nsqc.spark.jobs.running import JobError
from nsqc.spark.log import ranges
from nsqc.spark.log.api import State
from nsqc.spark.log.checkpoint import nested
from nsqc.spark.log.ranges import Place
from nsqc.spark.values import read_json
from nsqc.wire.names import is_ephemeral

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# For the option pushFilters: a time range then skips messages outside it.
SETTINGS = {"spark.sql.python.filterPushdown.enabled": "true"}
OFFSETS = 'a whole number, or JSON by node, such as {"host:4150": 23}'


class Logs(NamedTuple):
    """Log-backed topics between offsets, by topic and node; messages: their number."""

    source: dict[str, str]      # options of the data source
    starts: dict[Place, int]
    ends: dict[Place, int]
    messages: int


def source(cluster: Cluster, names: list[str]) -> dict[str, str]:
    """The options of the data source for some topics."""
    if cluster.http and "nsqlookupd" in cluster.options:
        raise typer.BadParameter("--http needs --nsqd: nsqlookupd reports the HTTP addresses")
    given = cluster.options | {"topic": ",".join(names)}
    if cluster.http:
        given["http"] = ",".join(cluster.http)
        if len(cluster.http) != len(cluster.options["nsqd"].split(",")):
            raise typer.BadParameter("--http needs one address for each of --nsqd, in the same order")
    return given


def look(cluster: Cluster, names: list[str], note: Callable[[str], None], all_nodes: str = "") -> dict[Place, State]:
    """The logs of topics on the responding nodes. all_nodes: why all of them are needed. Raises JobError if a required
    node does not answer, or a topic is missing or stored in memory."""
    with nodes.found(cluster, note) as (apis, down):
        states = {}
        for node, api in apis.items():
            for name in names:
                if (state := api.log_state(name)) is not None:
                    states[Place(name, node)] = state
        if down and all_nodes:
            raise JobError(f"{'; '.join(down.values())}: {all_nodes}")
        for why in down.values():
            note(f"{why}; continuing with the others")
        for name in names:
            if all(place.topic != name for place in states):
                known = {topic for api in apis.values() for topic in api.topics()}
                raise JobError(f"no topic {name}; {topics.choice('topics', name, known)}")
    owners: dict[tuple[str, str], Place] = {}
    for place in sorted(states):    # the data source takes the first one, too, and refuses copies
        owner = owners.setdefault((place.topic, states[place].id), place)
        if states[place].id and owner != place:
            note(f"topic {place.topic} at {place.node} is the same log as at {owner.node}: it is read once")
            del states[place]
    return states


def require_topic(cluster: Cluster, name: str, note: Callable[[str], None]) -> None:
    """Raises JobError if no node has a topic, in any storage; ephemeral ones may come and go."""
    if is_ephemeral(name.encode()):
        return
    with nodes.found(cluster, note) as (apis, _):
        known = {topic for api in apis.values() for topic in api.topics()}
    if name not in known:
        raise JobError(f"no topic {name}; {topics.choice('topics', name, known)}; --create creates it")


def fixed(cluster: Cluster, names: list[str], note: Callable[[str], None], first: str | None = None,
          last: str | None = None) -> Logs:
    """The current contents of logs, or the part from --from-offset to before --to-offset, which need a single topic.
    Raises JobError."""
    states = look(cluster, names, note, "all nsqd must answer, or messages would be missing")
    starts = {place: state.first for place, state in states.items()} | asked("--from-offset", first, states)
    ends = {place: state.next for place, state in states.items()} | asked("--to-offset", last, states)
    for place in starts:
        if starts[place] > ends[place]:
            raise JobError(f"--from-offset {starts[place]} is after --to-offset {ends[place]} at {place.node}")
    messages = sum(ranges.count(states[place].segments, starts[place], ends[place]) for place in states)
    return Logs(source(cluster, names), starts, ends, messages)


def asked(option: str, text: str | None, states: dict[Place, State]) -> dict[Place, int]:
    """The offsets given by an option. Raises JobError if they do not exist."""
    if text is None:
        return {}
    given = read_offsets(text)
    if isinstance(given, int):
        if len(states) > 1:
            raise JobError(f"{option} {given}: the topic is on {len(states)} nsqd, each with its own offsets: give "
                           f"them by node, {json.dumps({place.node: given for place in states})}")
        given = {place.node: given for place in states}
    by_node = {place.node: place for place in states}
    if unknown := sorted(given.keys() - by_node.keys()):
        raise JobError(f"{option}: {unknown[0]} does not have the topic; there {'is' if len(by_node) == 1 else 'are'} "
                       f"{', '.join(by_node)}")
    for node, offset in given.items():
        state = states[by_node[node]]
        if not state.first <= offset <= state.next:
            raise JobError(f"{option} {offset}: topic {by_node[node].topic} at {node} has offsets {state.first} to "
                           f"{state.next}")
    return {by_node[node]: offset for node, offset in given.items()}


def read_offsets(text: str) -> int | dict[str, int]:
    """An offset, or some by node. Raises ValueError."""
    given = read_json(text)
    for offset in given.values() if isinstance(given, dict) and given else [given]:
        if type(offset) is not int or not 0 <= offset < 2**63:
            raise ValueError(f"must be {OFFSETS}")
    return given  # type: ignore[no-any-return]


def rows(spark: SparkSession, logs: Logs, columns: str, start: int | None = None, end: int | None = None) -> DataFrame:
    """These columns (in Spark's DDL) of the messages published from start to end (microseconds since 1970): a partition
    per log, in the order of its offsets."""
    from pyspark.sql import functions as f

    given = {**logs.source, "minPartitions": "1", "startingOffsets": json.dumps(nested(logs.starts)),
             "endingOffsets": json.dumps(nested(logs.ends))}
    if start is not None or end is not None:
        given["pushFilters"] = "true"       # each query of the frame has these filters
    frame = spark.read.format("nsq").schema(columns).options(**given).load()
    if start is not None:
        frame = frame.where(f.col("timestamp") >= f.timestamp_micros(f.lit(start)))
    if end is not None:
        frame = frame.where(f.col("timestamp") < f.timestamp_micros(f.lit(end)))
    return frame
