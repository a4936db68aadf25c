"""The numbers of topics and channels: counts, levels and latencies. See the .pxd."""

from typing import final

# ====================================================================== latency

@final
class LatencyWindow:
    def __init__(self, quantiles: list[float], window_ns: int) -> None: ...
    @property
    def quantiles(self) -> list[float]: ...
    def add(self, latency_ns: int) -> None: ...
    @staticmethod
    def result(windows: list[LatencyWindow]) -> tuple[int, list[tuple[float, float]]]: ...
