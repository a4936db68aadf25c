"""Slow iterations of the loop: a log line, and the worst of the last hour."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from time import monotonic
from types import FrameType
from typing import Any

from msgspec import Struct

from nsqc.log import Log
from nsqc.loop.uv import Watch, span_began, span_ended

# ====================================================================== slow

EVERY_S = 10.0          # between two lines; slow iterations in between are counted
HOUR_S = 3600.0
PART_S = 60.0           # one part of the hour; each keeps its worst
KEPT = 8                # iterations kept per part
NO_HANDLER = "no single handler took long"


class Slow(Struct, frozen=True, gc=False):
    """An iteration: when it ended (unix seconds), how long it took, and its longest handler (nanoseconds)."""

    ended: float
    ns: int
    handler_ns: int
    handler: str

    def __str__(self) -> str:
        if not self.handler:
            return f"took {_ms(self.ns)}; {NO_HANDLER}"
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
        more = ""
        if self._worst:
            others = f"{self._unlogged} others, of which the worst" if self._unlogged > 1 else "another, which"
            more = f"; before it {others} {self._worst}"
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


# ====================================================================== promise
# Futures whose results come from callbacks.

# Any: as the callback's argument
def promise() -> tuple[asyncio.Future[Any], Callable[..., None]]:
    """A future of the running loop, and a callback that sets its result. Later calls, and calls after the future was
    cancelled, have no effect."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()    # Any: the same

    def settle(result: object = None) -> None:
        if not future.done():
            future.set_result(result)

    return future, settle


# ====================================================================== share
# A time budget per loop iteration, for a listener's HTTP requests or for registrations: a flood delays no one else.
#
# Code that runs immediately calls over() every few steps; the rest is queued with add(), or awaits rest(). Long work on
# topics and channels runs in slices instead (nsqc.store.work).

REQUESTS_S = 0.001          # HTTP requests, all connections together
REGISTRATIONS_S = 0.005     # nodes of the lookup server, all together
LISTS_S = 0.005             # long answers of the lookup server, separate: they proceed during a storm of registrations


class Share:
    """The time that one kind of work may take per iteration."""

    def __init__(self, seconds: float, what: str) -> None:
        """what: the work's name in /debug/slow."""
        self._seconds = seconds
        self._what = what
        self._end = 0.0                                     # of this iteration's share; 0: not started
        self._queue: deque[Callable[[], object]] = deque()

    def over(self) -> bool:
        """Whether this iteration's share is used up. The first call in an iteration starts it."""
        if self._end:
            return monotonic() >= self._end
        self._begin()
        return False

    def add(self, step: Callable[[], object]) -> None:
        """Calls step() in later iterations, round-robin with others, until it returns a false value."""
        self._queue.append(step)
        if not self._end:
            self._begin()

    async def rest(self) -> None:
        """Waits for the next iteration if this one's share is used up."""
        while self.over():
            await asyncio.sleep(0)

    def finish(self) -> None:
        """Runs everything queued now, for a shutdown."""
        while self._queue:
            self._step()

    def _begin(self) -> None:
        self._end = monotonic() + self._seconds
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """The iteration after one that used the share."""
        self._end = 0.0
        if self._queue:
            self._begin()
            began = span_began()
            while self._queue and monotonic() < self._end:
                self._step()
            span_ended(began, self._what)

    def _step(self) -> None:
        step = self._queue.popleft()
        if step():
            self._queue.append(step)


# ====================================================================== steps
# A coroutine whose steps have a name, for reports of slow iterations.

class Steps(Coroutine[Any, Any, object]):  # Any: values exchanged with the loop
    """Runs another coroutine; kind and str(what) name it."""

    __slots__ = ("_kind", "_what", "_work")

    # Any: as above
    def __init__(self, work: Coroutine[Any, Any, object], kind: str, what: object) -> None:
        self._work = work
        self._kind = kind
        self._what = what

    @property
    def cr_frame(self) -> FrameType | None:
        """The innermost awaited coroutine, for code that prints the stacks of tasks."""
        frame: FrameType | None = getattr(self._work, "cr_frame", None)
        inner = getattr(self._work, "cr_await", None)
        while (deeper := getattr(inner, "cr_frame", None)) is not None:
            frame, inner = deeper, getattr(inner, "cr_await", None)
        return frame

    def __await__(self) -> Generator[Any, Any, object]:  # Any: as above
        return self._work.__await__()

    def send(self, value: object) -> object:
        """One step."""
        began = span_began()
        try:
            return self._work.send(value)
        finally:
            span_ended(began, self._kind, self._what)

    # Any: typeshed's signature
    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> object:
        """A step that starts with an exception."""
        return self._work.throw(kind) if value is None else self._work.throw(kind, value, trace)

    def close(self) -> None:
        """Closes the coroutine."""
        self._work.close()
