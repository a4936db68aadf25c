"""`nsqc bench`: measures an nsqd's throughput and latency."""

from nsqc.tools.bench.declaration import TOOL

__all__ = ["TOOL"]
