"""What the nsq sources of a query say of themselves, out of Spark's own progress. Knows no Spark.

PySpark gives a Python source no place for metrics: sources[].metrics is filled for Java sources only. What a source
reports as its latest offset comes into each StreamingQueryProgress as it is, and is neither compared nor checkpointed:
the metrics are in there, sources[].latestOffset["metrics"].
"""

from __future__ import annotations

import json
from typing import Any


def metrics(of: Any) -> list[dict[str, Any]]:
    """of: a StreamingQuery, a StreamingQueryProgress, or such a progress as a dict or JSON. A dict for each nsq source;
    none before the first progress."""
    progress = of
    if hasattr(of, "lastProgress"):
        progress = of.lastProgress
    if hasattr(progress, "json"):
        progress = progress.json
    if callable(progress):
        progress = progress()
    if isinstance(progress, str):
        progress = json.loads(progress)
    found = []
    for source in (progress or {}).get("sources", ()):
        latest = source.get("latestOffset")
        if isinstance(latest, str):
            latest = json.loads(latest)
        if isinstance(latest, dict) and "metrics" in latest and "log" in latest:
            found.append(latest["metrics"])
    return found
