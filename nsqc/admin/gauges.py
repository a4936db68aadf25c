"""A node's process, disk and latencies by its /metrics. They come first on that page; the rest of it is not read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from nsqc.admin.model import P99, Buckets, NodeRow

METRICS_BYTES = 96 * 1024
NS = 1e9
FIELDS = {b"nsqc_disk_free_bytes": "disk_free", b"nsqc_disk_size_bytes": "disk_size",
          b"nsqc_disk_free_limit_bytes": "disk_limit", b"nsqc_process_resident_memory_bytes": "memory",
          b"nsqc_process_cpu_seconds_total": "cpu_s"}
_LE = re.compile(rb'(?:^|,)le="([^"]{1,32})"')
_LINE = re.compile(rb"^(nsqc_[a-z_]+)(?:\{([^}\n]*)\})? ([0-9.eE+-]+)", re.MULTILINE)
_VERSION = re.compile(rb'(?:^|,)version="([^"]{1,64})"')


def take_gauges(row: NodeRow, body: bytes, past: NodeRow | None, at: float) -> None:
    """Fills in the fields of a row. past: of the time before, from which the use of the processor is counted."""
    end = body.find(b"nsqc_topic_")
    for name, labels, text in _LINE.findall(body if end < 0 else body[:end]):
        try:
            _take(row, name, labels, float(text))
        except ValueError:
            continue
    row.gauges_at = at
    is_same = past is not None and past.start_time == row.start_time
    row.recent_times = difference(row.times, past.times if is_same and past is not None else {})
    if past is not None and is_same and row.cpu_s >= past.cpu_s >= 0:
        seconds = at - past.gauges_at
        row.cpu = (row.cpu_s - past.cpu_s) / seconds if seconds > 0 else -1.0


def _take(row: NodeRow, name: bytes, labels: bytes, value: float) -> None:
    if name == b"nsqc_build_info":
        version = _VERSION.search(labels)
        row.nsqc = version[1].decode("utf-8", "replace") if version is not None else ""
    elif field := FIELDS.get(name):
        setattr(row, field, value)
    elif name == b"nsqc_draining":
        row.draining = value > 0
    elif name == b"nsqc_processing_latency_seconds_bucket":
        bound = _LE.search(labels)
        if bound is not None:
            row.times[float(bound[1])] = value
    elif name == b"nsqc_connections":
        row.connections = max(row.connections, 0.0) + value


def difference(now: Buckets, before: Buckets) -> Buckets:
    """The counts since an earlier reading."""
    return {bound: max(count - before.get(bound, 0.0), 0.0) for bound, count in now.items()}


def p99_of_buckets(parts: Iterable[Buckets]) -> float:
    """The upper bound of the bucket with the 99th percentile of several nodes together, nanoseconds; 0: nothing was
    counted; below 0: no node counts."""
    sums: Buckets = {}
    for part in parts:
        for bound, count in part.items():
            sums[bound] = sums.get(bound, 0.0) + count
    if not sums:
        return -1.0
    total = sums.get(math.inf, 0.0)
    if not total:
        return 0.0
    finite = sorted(bound for bound in sums if math.isfinite(bound))
    return next((bound for bound in finite if sums[bound] >= P99 * total), finite[-1] if finite else 0.0) * NS
