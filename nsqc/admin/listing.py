"""Lists for the page: sorted, searched and cut here, so that the page never has more than it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from nsqc.admin.gauges import p99_of_buckets
from nsqc.admin.history import History
from nsqc.admin.model import ChannelRow, Moment, NodeRow, TopicRow, Totals
from nsqc.admin.pace import Pace
from nsqc.httpd.reply import ApiError
from nsqc.wire.outside import Json

T = TypeVar("T")
MOST_ROWS = 500
MOST_FOUND = 30
NS_PER_MS = 1e6

BY: dict[str, Callable[[TopicRow], Any]] = {     # Any: values that compare
    "name": lambda row: row.name, "came": lambda row: row.came, "went": lambda row: row.went,
    "depth": lambda row: row.total_depth, "in_flight": lambda row: row.in_flight, "messages": lambda row: row.messages,
    "channels": lambda row: len(row.channels), "clients": lambda row: row.clients, "nodes": lambda row: row.nodes,
    "oldest": lambda row: -row.oldest if row.oldest else -1e18, "deferred": lambda row: row.deferred,
}


def rate(value: float) -> float | None:
    """A rate for JSON; null: not known yet."""
    return None if value < 0 else float(f"{value:.4g}")


def known(value: float) -> float | None:
    """A number for JSON; null: unknown."""
    return None if value < 0 else value


def milliseconds(nanoseconds: float) -> float | None:
    """A latency for JSON; null: none is measured."""
    return float(f"{nanoseconds / NS_PER_MS:.4g}") if nanoseconds > 0 else None


def latency(measured_ns: float, bucket_ns: float = -1.0) -> Json:
    """A 99th percentile, and its source: percentiles of nsqd, or buckets of a histogram, of which it is the upper
    bound. null: not measured."""
    if measured_ns >= 0 or bucket_ns < 0:
        return {"p99_ms": milliseconds(measured_ns), "p99_from": "percentiles" if measured_ns >= 0 else None}
    return {"p99_ms": milliseconds(bucket_ns), "p99_from": "buckets"}


def since(unix: float) -> float | None:
    """A time for JSON; null: there is none."""
    return round(unix, 3) if unix else None


def totals_json(total: Totals) -> Json:
    """Sums over the fleet."""
    return {"topics": total.topics, "channels": total.channels, "clients": total.clients, "depth": total.depth,
            "in_flight": total.in_flight, "deferred": total.deferred, "came": rate(total.came),
            "went": rate(total.went), "oldest": since(total.oldest), **latency(total.latency_ns, total.bucket_ns),
            "nodes": total.nodes, "answering": total.answering}


def topic_row(row: TopicRow, history: History | None = None) -> Json:
    """A line of the list of topics."""
    data: Json = {"name": row.name, "came": rate(row.came), "went": rate(row.went), "depth": row.total_depth,
            "waiting": row.depth, "backend": row.backend, "in_flight": row.in_flight, "deferred": row.deferred,
            "messages": row.messages, "bytes": row.bytes, "channels": len(row.channels), "clients": row.clients,
            "nodes": row.nodes, "paused": row.paused, "damaged": row.damaged, "oldest": since(row.oldest),
            "publish_ids": known(row.publish_ids), "deduplicated": row.deduplicated,
            "forgotten_ids": row.forgotten_ids, **latency(row.latency_ns)}
    if history is not None:
        data["spark"] = history.spark((row.name,))
    return data


def channel_row(row: ChannelRow, history: History | None = None) -> Json:
    """A line of a list of channels."""
    data: Json = {
        "topic": row.topic, "name": row.name, "came": rate(row.came), "went": rate(row.went), "depth": row.depth,
        "backend": row.backend, "in_flight": row.in_flight, "deferred": row.deferred, "messages": row.messages,
        "requeues": row.requeues, "timeouts": row.timeouts, "requeued": rate(row.requeued),
        "timed_out": rate(row.timed_out), "clients": row.clients, "nodes": row.nodes, "paused": row.paused,
        "oldest": since(row.oldest), **latency(row.latency_ns), "still_since": since(row.still_since),
        "rules": row.rules or {}, "dead_topic": row.dead_topic, "dead_letters": row.dead_letters}
    if history is not None:
        data["spark"] = history.spark((row.topic, row.name), "depth")
    return data


def node_row(row: NodeRow, history: History | None = None) -> Json:
    """A line of the list of nodes."""
    data: Json = {
        "address": row.address, "tcp": row.tcp, "hostname": row.hostname, "version": row.version, "nsqc": row.nsqc,
        "listed": row.listed, "error": row.error, "missing_since": since(row.missing_since), "health": row.health,
        "start_time": row.start_time or None, "topics": known(row.topics), "channels": known(row.channels),
        "clients": known(row.clients), "depth": known(row.depth), "in_flight": known(row.in_flight),
        "messages": known(row.messages),
        "came": rate(row.came), "went": rate(row.went), "answer_ms": round(row.answer_ms, 1),
        "disk_free": known(row.disk_free), "disk_size": known(row.disk_size), "memory": known(row.memory),
        "cpu": known(row.cpu), "draining": row.draining, "connections": known(row.connections),
        **latency(-1.0, p99_of_buckets([row.recent_times]))}
    if history is not None:
        data["spark"] = history.spark(("/", row.address))
    return data


def topics_page(moment: Moment, history: History, *, search: str, by: str, descending: bool, offset: int,
                limit: int) -> Json:
    """A page of the list of topics. Raises ApiError."""
    if by not in BY:
        raise ApiError(400, f"INVALID_ARG_SORT - one of {', '.join(BY)}")
    rows = moment.orders.get((by, descending))
    if rows is None:
        rows = sorted(moment.topics.values(), key=lambda row: row.name)
        if by != "name" or descending:
            rows.sort(key=BY[by], reverse=descending)
        moment.orders[by, descending] = rows
    if search:
        wanted = search.lower()
        rows = [row for row in rows if wanted in row.name.lower()]
    return {"total": len(rows), "offset": offset, "at": round(moment.at, 3),
            "topics": [topic_row(row, history) for row in cut(rows, offset, limit)]}


def cut(rows: Sequence[T], offset: int, limit: int) -> Sequence[T]:
    """A page."""
    return rows[offset:offset + min(limit, MOST_ROWS)]


async def search(moment: Moment, text: str) -> list[Json]:
    """Topics, channels and nodes whose names have a text in them: those that begin with it first."""
    wanted = text.lower()
    pace = Pace()
    found: list[tuple[int, int, int, str, Json]] = []

    def add(first: int, kind: int, name: str, data: Json) -> None:
        found.append((first, kind, len(name), name, data))
        if len(found) > 20 * MOST_FOUND:
            found[:] = best(found)

    for node in moment.nodes.values():
        name = f"{node.address} {node.hostname}"
        if (at := name.lower().find(wanted)) >= 0:
            add(min(at, 1), 1, name, {"kind": "node", "node": node.address, "hint": node.hostname})
    for row in moment.topics.values():
        if (at := row.name.lower().find(wanted)) >= 0:
            add(min(at, 1), 0, row.name, {"kind": "topic", "topic": row.name})
        if pace.over():
            await pace.rest()
    if len(found) < MOST_FOUND or "/" in wanted:
        for row in moment.topics.values():
            if wanted not in row.name.lower():
                for name in row.channels:
                    whole = f"{row.name}/{name}"
                    if wanted in whole.lower():
                        add(0 if name.lower().startswith(wanted) else 1, 2, whole,
                            {"kind": "channel", "topic": row.name, "channel": name})
            if pace.over():
                await pace.rest()
    return [data for *_, data in best(found)]


def best(found: list[tuple[int, int, int, str, Json]]) -> list[tuple[int, int, int, str, Json]]:
    """Those that come first."""
    return sorted(found, key=lambda each: each[:4])[:MOST_FOUND]
