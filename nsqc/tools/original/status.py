"""Status lines of nsq_to_http and nsq_to_nsq: answer times."""

from __future__ import annotations

import math
from collections.abc import Callable

from nsqc.options.durations import format_duration

FEW = 100


class Recorder:
    """A line after every N answers; name: its beginning."""

    def __init__(self, every: int, name: str, say: Callable[[str], None]):
        self._every, self._name, self._say = every, name, say
        self._seconds: list[float] = []
        if every < FEW:
            say(f"Warning: use more than {FEW} status values for accurate percentiles (configured with {every})")

    def add(self, seconds: float) -> None:
        """Adds an answer."""
        if len(self._seconds) >= self._every:
            ordered = sorted(self._seconds)
            parts = [f"{percent}th: {self._percentile(ordered, percent)}" for percent in (99, 95)]
            average = shown(sum(ordered) / len(ordered))
            self._say(f"{self._name}: finished {len(ordered)} - {' - '.join(parts)} - avg: {average}")
            self._seconds = []
        self._seconds.append(seconds)

    @staticmethod
    def _percentile(ordered: list[float], percent: int) -> str:
        at = math.ceil(percent / 100 * len(ordered) + 0.5)
        return shown(ordered[min(max(at, 1), len(ordered)) - 1])


def shown(seconds: float) -> str:
    """A time in Go's format, to a hundredth of its unit."""
    nanoseconds = round(seconds * 10**9)
    unit = next((size for size in (10**9, 10**6, 10**3) if nanoseconds >= size), 1)
    step = max(unit // 100, 1)
    return format_duration(nanoseconds // step * step)


class Status:
    """every: answers per line, 0: no lines. One recorder for each address, if there are several, and one for all."""

    def __init__(self, every: int, addresses: tuple[str, ...], say: Callable[[str], None]):
        self._by_address: dict[str, Recorder] = {}
        self._all: Recorder | None = None
        if every > 0:
            self._all = Recorder(every, "[aggregate]", say)
            if len(addresses) > 1:
                self._by_address = {address: Recorder(every, f"[{address}]", say) for address in addresses}

    def add(self, address: str, seconds: float, count: int = 1) -> None:
        """Records count answers after this many seconds."""
        for _ in range(count):
            if self._all is not None:
                self._all.add(seconds)
            if address in self._by_address:
                self._by_address[address].add(seconds)
