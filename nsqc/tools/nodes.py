"""`nsqc nodes`: lists nodes with version, uptime, health and contents."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from nsqc.tools import running
from nsqc.tools.declare import EXIT_FAILED, EXIT_NO_NODE, HTTP_NODES, JSON, Tool, ToolError, Values
from nsqc.wire.outside import Json

if TYPE_CHECKING:
    from nsqc.tools.cluster import Cluster, Node

WORDS = "nsqc nodes"
AT_ONCE = 16
HEADS = ("NODE", "HTTP", "HOST", "VERSION", "TOPICS", "CHANNELS", "DEPTH", "UP", "BUCKET", "HEALTH")
BUCKET = HEADS.index("BUCKET")      # shown if a node has one


class State(NamedTuple):
    """The answers of a node. error: why there are none; hostname and version may still be known from nsqlookupd.
    start_time: unix seconds. bucket: from /info; None: the node has none."""

    hostname: str = ""
    version: str = ""
    topics: int = 0
    channels: int = 0
    depth: int = 0
    start_time: int = 0
    health: str = ""
    error: str = ""
    bucket: dict[str, Json] | None = None


def run(values: Values) -> int:
    """`nsqc nodes`."""
    from nsqc.tools.cluster import Cluster

    states = ask_all(Cluster(values, WORDS))
    if values.flag("json"):
        for node, state in states.items():
            running.as_json(as_dict(node, state))
    elif states:
        rows = [[*HEADS], *(row(node, state) for node, state in states.items())]
        if not any(state.bucket for state in states.values()):
            for cells in rows:
                del cells[BUCKET]
        running.write(running.table(rows, frozenset({4, 5, 6, 7})))
    else:
        running.line("no nodes")
    silent = sum(bool(state.error) for state in states.values())
    return 0 if not silent else EXIT_NO_NODE if silent == len(states) else EXIT_FAILED


def ask_all(cluster: Cluster) -> dict[Node, State]:
    """Asks all nodes, AT_ONCE in parallel, so that timeouts do not add up; keeps their order. Raises NoNode,
    UsageError."""
    announced = cluster.announced()
    if announced:
        cluster.http(next(iter(announced))).close()     # reports unusable certificates once, as a usage error
    waiting = deque(announced)
    states: dict[Node, State] = {}

    def ask() -> None:
        with suppress(IndexError):      # another thread took the last one
            while waiting:
                node = waiting.popleft()
                states[node] = state_of(cluster, node, announced[node])

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(min(AT_ONCE, len(announced)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {node: states.get(node, State(error="not the answer of an nsqd")) for node in announced}


def state_of(cluster: Cluster, node: Node, producer: dict[str, Json]) -> State:
    """Asks a node. producer: its entry in the answer of nsqlookupd."""
    known = State(text(producer, "hostname"), text(producer, "version"))
    api = cluster.http(node)
    try:
        api.check()
        info = api.get("/info")
        stats = api.stats()
    except ToolError as error:
        return known._replace(error=str(error).removeprefix(f"{api.address}: "))
    finally:
        api.close()
    topics = stats.topics or []
    found = info.get("bucket") if isinstance(info, dict) else None
    channels = [channel for topic in topics for channel in topic.channels or ()]
    return State(text(info, "hostname") or known.hostname, stats.version, len(topics), len(channels),
                 sum(topic.depth for topic in topics) + sum(channel.depth for channel in channels),
                 stats.start_time, stats.health, bucket=found if isinstance(found, dict) else None)


def text(answer: Json, key: str) -> str:
    """A text in an answer; empty without one."""
    found = answer.get(key) if isinstance(answer, dict) else None
    return found if isinstance(found, str) else ""


def uptime(state: State) -> float:
    """Seconds; below 0: unknown."""
    return max(time.time() - state.start_time, 0.0) if state.start_time else -1.0


def row(node: Node, state: State) -> list[str]:
    """A line of the table."""
    from nsqc.tools.top.screen import age

    if state.error:
        return [node.tcp, node.http, state.hostname, state.version, "", "", "", "", "", state.error]
    return [node.tcp, node.http, state.hostname, state.version, str(state.topics), str(state.channels),
            str(state.depth), age(uptime(state)), bucket_text(state.bucket), state.health]


def bucket_text(bucket: dict[str, Json] | None) -> str:
    """Epoch, lag, time since the last checkpoint, and since it was taken over; or who took it over."""
    from nsqc.tools.top.screen import age

    if bucket is None:
        return "-"
    if fenced := text(bucket, "fenced"):
        return fenced
    epoch, lag, size, put, owned = (bucket.get(key) for key in (
        "epoch", "lag_seconds", "lag_bytes", "checkpoint_time", "owned_since"))
    since = f", checkpoint {age(time.time() - put)} ago" if isinstance(put, int) and put else ""
    host = text(bucket, "taken_from")
    taken = f", from {host} {age(time.time() - owned)} ago" if host and isinstance(owned, int) else ""
    return f"epoch {epoch}{taken}, lag {lag} s, {size} bytes{since}"


def as_dict(node: Node, state: State) -> dict[str, object]:
    """For --json; unknown values are null."""
    found: dict[str, object] = {"node": node.http, "tcp": node.tcp, "hostname": state.hostname or None,
                                "version": state.version or None}
    if state.error:
        return {**found, "topics": None, "channels": None, "depth": None, "start_time": None, "uptime_seconds": None,
                "health": None, "bucket": None, "error": state.error}
    seconds = uptime(state)
    return {**found, "topics": state.topics, "channels": state.channels, "depth": state.depth,
            "start_time": state.start_time or None, "uptime_seconds": None if seconds < 0 else round(seconds, 3),
            "health": state.health or None, "bucket": state.bucket, "error": None}


TOOL = Tool(
    ("nodes",), "List nodes with version, uptime, health and contents.", run, options=(JSON, *HTTP_NODES),
    text="""The nodes are those of --nsqlookupd, or of --nsqd. Each node is queried directly. If one does not answer,
         its line gives the reason, and the exit code is 1, or 3 if none answers. DEPTH counts messages waiting in
         topics and channels.""",
    examples=(("nsqc nodes --nsqlookupd lookup:4161", "all registered nodes"),
              ("nsqc nodes --nsqlookupd lookup:4161 --json | jq -r 'select(.error) | .node'",
               "nodes that do not answer, for a script")))
