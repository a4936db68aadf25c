"""What a node's /metrics says of its process and its disk. They come first on that page; the rest of it is not read."""

from __future__ import annotations

import re

from nsqc.admin.model import NodeRow

METRICS_BYTES = 96 * 1024
_LINE = re.compile(rb"^(nsqc_[a-z_]+)(?:\{([^}\n]*)\})? ([0-9.eE+-]+)", re.MULTILINE)
_VERSION = re.compile(rb'(?:^|,)version="([^"]{1,64})"')


def take_gauges(row: NodeRow, body: bytes, past: NodeRow | None, at: float) -> None:
    """Fills in the fields of a row. past: of the time before, from which the use of the processor is counted."""
    end = body.find(b"nsqc_topic_")
    for name, labels, text in _LINE.findall(body if end < 0 else body[:end]):
        try:
            value = float(text)
        except ValueError:
            continue
        _take(row, name, labels, value)
    row.gauges_at = at
    if past is not None and past.start_time == row.start_time and row.cpu_s >= past.cpu_s >= 0:
        seconds = at - past.gauges_at
        row.cpu = (row.cpu_s - past.cpu_s) / seconds if seconds > 0 else -1.0


def _take(row: NodeRow, name: bytes, labels: bytes, value: float) -> None:
    if name == b"nsqc_build_info":
        version = _VERSION.search(labels)
        row.nsqc = version[1].decode("utf-8", "replace") if version is not None else ""
    elif name == b"nsqc_disk_free_bytes":
        row.disk_free = value
    elif name == b"nsqc_disk_size_bytes":
        row.disk_size = value
    elif name == b"nsqc_disk_free_limit_bytes":
        row.disk_limit = value
    elif name == b"nsqc_process_resident_memory_bytes":
        row.memory = value
    elif name == b"nsqc_process_cpu_seconds_total":
        row.cpu_s = value
    elif name == b"nsqc_draining":
        row.draining = value > 0
    elif name == b"nsqc_connections":
        row.connections = max(row.connections, 0.0) + value
