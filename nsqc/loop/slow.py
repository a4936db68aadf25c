"""Slow iterations of the loop: a log line, and the worst of the last hour."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from nsqc.log import Log
from nsqc.loop.watch import Watch

EVERY_S = 10.0          # between two lines; slow iterations in between are counted
HOUR_S = 3600.0
PART_S = 60.0           # one part of the hour; each keeps its worst
KEPT = 8                # iterations kept per part
UNKNOWN = "many handlers, or one without a name"


class Slow(Struct, frozen=True, gc=False):
    """An iteration: when it ended (unix seconds), how long it took, and its longest handler (nanoseconds)."""

    ended: float
    ns: int
    handler_ns: int
    handler: str

    def __str__(self) -> str:
        if not self.handler:
            return f"took {_ms(self.ns)}, in {UNKNOWN}"
        return f"took {_ms(self.ns)}, {_ms(self.handler_ns)} of it in {self.handler}"


class Part(Struct):
    """A minute: when it began (monotonic seconds), its number of slow iterations, and the worst of them."""

    began: float
    count: int = 0
    worst: list[Slow] = []


class SlowLoop:
    """Watches a loop once a limit is set. Must be closed before the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Log) -> None:
        self._loop = loop
        self._log = log
        self._limit = 0
        self._parts: deque[Part] = deque()
        self._next_line = 0.0           # monotonic: slow iterations before it are only counted
        self._unlogged = 0
        self._worst: Slow | None = None     # of the counted ones
        self._watch: Watch | None = None

    def set_limit(self, limit: int) -> None:
        """Sets --slow-loop, nanoseconds; 0: off."""
        if limit == self._limit:
            return
        self._limit = limit
        if not limit:
            self.close()
        elif self._watch is not None:
            self._watch.set_limit(limit)
        else:
            try:
                self._watch = Watch(self._loop, limit, self._report)
            except OSError as error:
                self._log.warn("LOOP: --slow-loop has no effect - %s", error)

    def close(self) -> None:
        """Stops watching, and logs iterations that were only counted."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._worst is not None:
            self._line(f"the worst of {self._unlogged} more slow iterations {self._worst}")

    def page(self) -> str:
        """Shown by /debug: the worst iterations of the last hour, the longest first."""
        self._forget(time.monotonic())
        count = sum(part.count for part in self._parts)
        head = f"iterations of the last hour that took more than {_ms(self._limit)}: {count}"
        if self._watch is None:
            head = "nothing is watched: see --slow-loop"
        return "\n".join([head, *self._worst_lines(), ""])

    def _worst_lines(self) -> Iterator[str]:
        for one in sorted((one for part in self._parts for one in part.worst), key=lambda one: -one.ns):
            yield f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(one.ended))} {one}"

    def _report(self, ns: int, handler_ns: int, handler: str) -> None:
        now = time.monotonic()
        slow = Slow(time.time(), ns, handler_ns, handler)
        self._keep(slow, now)
        if now < self._next_line:
            self._unlogged += 1
            if self._worst is None or ns > self._worst.ns:
                self._worst = slow
            return
        self._next_line = now + EVERY_S
        more = f"; before it {self._unlogged} others, of which the worst {self._worst}" if self._worst else ""
        self._line(f"an iteration {slow}{more}")

    def _line(self, text: str) -> None:
        self._unlogged, self._worst = 0, None
        # Not as the format: names come from clients.
        self._log.warn("LOOP: %s", text)

    def _keep(self, slow: Slow, now: float) -> None:
        self._forget(now)
        if not self._parts or now - self._parts[-1].began >= PART_S:
            self._parts.append(Part(now))
        part = self._parts[-1]
        part.count += 1
        part.worst.append(slow)
        if len(part.worst) > KEPT:
            part.worst.remove(min(part.worst, key=lambda one: one.ns))

    def _forget(self, now: float) -> None:
        while self._parts and now - self._parts[0].began >= HOUR_S:
            self._parts.popleft()


def _ms(ns: int) -> str:
    if ns < 1000:
        return f"{ns} ns"
    return f"{ns / 1e6:.3g} ms" if ns < 100_000_000 else f"{ns // 1_000_000} ms"
