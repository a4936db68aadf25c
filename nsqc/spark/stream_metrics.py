"""The metrics of the nsq sources of a query, read from Spark's own progress. Knows no Spark.

PySpark gives a Python source no place for metrics: sources[].metrics is filled for Java sources only. A source's latest
offset appears unchanged in each StreamingQueryProgress, and is neither compared nor checkpointed: so the metrics are in
sources[].latestOffset["metrics"].
"""

from __future__ import annotations

from typing import Any, TypedDict

from nsqc.wire.outside import decode


class ConsumerMetrics(TypedDict):
    """The stager's metrics; docs/spark.md describes each."""

    depth: int | None
    nsqdUp: int
    nsqdDown: dict[str, str]
    unreachableSeconds: float
    reconnects: int
    duplicates: int
    paused: bool


class StreamMetrics(ConsumerMetrics):
    """All metrics of a source."""

    backlog: int
    backlogBytes: int
    oldestAgeSeconds: float | None


# Any: a StreamingQuery or StreamingQueryProgress of classic or Connect sessions, which share no base; or JSON
def metrics(of: Any) -> list[StreamMetrics]:
    """of: a StreamingQuery, a StreamingQueryProgress, or such a progress as a dict or JSON. One dict per nsq source;
    none before the first progress."""
    progress = of
    if hasattr(of, "lastProgress"):
        progress = of.lastProgress
    if hasattr(progress, "json"):
        progress = progress.json
    if callable(progress):
        progress = progress()
    if isinstance(progress, str):
        progress = decode(progress)
    sources = []
    for source in (progress or {}).get("sources", ()):
        latest = source.get("latestOffset")
        if isinstance(latest, str):
            latest = decode(latest)
        if isinstance(latest, dict) and "metrics" in latest and ("log" in latest or "joined" in latest):
            sources.append(latest["metrics"])
    return sources
