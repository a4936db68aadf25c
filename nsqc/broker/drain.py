"""Drain: the node accepts and delivers no more messages, and waits until those in flight are finished.

It also leaves the lookup servers, so producers and consumers go elsewhere. Queued messages stay here: delivering them
all may take forever, and a stop writes them to disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from nsqc.broker.broker import Broker
from nsqc.broker.channel import Consumer
from nsqc.log import Log

EVERY_S = 0.02          # between two checks for messages in flight
EACH_S = 2e-6           # more for each consumer with messages: checks should take only a few percent of the time

SERVING, DRAINING, DRAINED = "serving", "draining", "drained"


class DrainState(Struct, frozen=True, gc=False):
    """The answer of /drain. in_flight: messages that consumers may still finish, and the number of these consumers;
    since and deadline are unix seconds, None while the node serves. keep: no stop follows."""

    state: str
    keep: bool
    in_flight: int
    consumers: int
    since: float | None
    deadline: float | None


class Drain:
    """At most one runs. The latest request counts: it may set another deadline, or whether a stop follows."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker, timeout: Callable[[], int],
                 changed: Callable[[bool], None], stop: Callable[[], None], log: Log) -> None:
        """timeout: the default, nanoseconds. changed(draining) is called when one begins or is undone, stop() at the
        end of one without keep."""
        self._loop = loop
        self._broker = broker
        self._slicer = broker.slicer
        self._timeout = timeout
        self._changed = changed
        self._stop = stop
        self._log = log
        self._keep = False
        self._since = 0.0                       # unix seconds; 0: the node serves
        self._deadline = 0.0                    # of the loop's clock
        self._over = False                      # nothing is in flight, or the timeout has passed
        # Consumers with messages in flight at the last check. One list per drain: halting adds to it.
        self._busy: list[Consumer] = []
        self._work: Iterator[None] | None = None    # channels still to be halted or resumed
        self._timer: asyncio.Handle | None = None
        self.closed = False                     # the daemon is stopping

    def begin(self, timeout: int | None, keep: bool) -> None:
        """Begins a drain. timeout: nanoseconds; None: unchanged, or the default. Does nothing during a stop."""
        if self.closed:
            return
        begins = not self._since
        if begins or timeout is not None:
            timeout = self._timeout() if timeout is None else timeout
            self._deadline = self._loop.time() + timeout / 1e9
            self._log.info("DRAIN: %s, for at most %g s; %s", "begins" if begins else "continues", timeout / 1e9,
                           "no stop follows" if keep else "then the daemon stops")
        elif keep != self._keep:
            self._log.info("DRAIN: %s", "no stop follows" if keep else "the daemon stops at its end")
        self._keep = keep
        self._over = self._over and not begins and not self._look()
        if begins:
            self._since = time.time()
            self._broker.draining = True
            self._busy = []
            self._turn(self._broker.halt(self._busy))
            self._changed(True)
        self._again(0.0)

    def undo(self) -> None:
        """Serves again, unless the daemon is already stopping."""
        if self.closed or not self._since:
            return
        self._log.info("DRAIN: is undone")
        self._since = 0.0
        self._cancel()
        self._broker.draining = False
        self._busy = []
        self._turn(self._broker.halt([]))
        self._changed(False)

    def state(self) -> DrainState:
        """The current state."""
        if not self._since:
            return DrainState(SERVING, False, 0, 0, None, None)
        in_flight = self._look()
        deadline = time.time() + self._deadline - self._loop.time()
        return DrainState(DRAINED if self._over else DRAINING, self._keep, in_flight, len(self._busy),
                          round(self._since, 3), round(deadline, 3))

    @property
    def reason(self) -> str | None:
        """Why the node is not ready; None: it is not draining."""
        return "draining" if self._since else None

    def close(self) -> None:
        """For a stop."""
        self.closed = True
        self._work = None
        self._cancel()

    # ------------------------------------------------------------------ all channels, in slices

    def _turn(self, work: Iterator[None]) -> None:
        """Halts or resumes all channels, including those that an earlier call did not reach."""
        running, self._work = self._work is not None, work
        if not running:
            self._slicer.start()
            if self._step():
                self._slicer.call(self._step)

    def _step(self) -> bool:
        """Runs a slice; returns whether work remains."""
        while self._work is not None:
            if next(self._work, self) is self:
                self._work = None
            elif self._slicer.is_over():
                return True
        return False

    # ------------------------------------------------------------------ the end

    def _look(self) -> int:
        """Count of messages in flight to connected clients."""
        self._busy[:] = [consumer for consumer in self._busy if consumer.in_flight > 0 and not consumer.closed]
        return sum(consumer.in_flight for consumer in self._busy)

    def _again(self, seconds: float) -> None:
        self._cancel()
        self._timer = self._loop.call_later(seconds, self._check) if seconds else self._loop.call_soon(self._check)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        in_flight = self._look()
        late = self._loop.time() >= self._deadline
        if not late and (in_flight or self._work is not None):
            left = self._deadline - self._loop.time()
            self._again(max(0.001, min(left, EVERY_S + len(self._busy) * EACH_S)))
            return
        if not self._over:
            self._over = True
            self._report(in_flight)
        if not self._keep:
            self.closed = True
            self._stop()

    def _report(self, in_flight: int) -> None:
        if in_flight:
            self._log.warn("DRAIN: the time is over, %d messages are still in flight to %d consumers", in_flight,
                           len(self._busy))
        else:
            self._log.info("DRAIN: nothing is in flight any more")
