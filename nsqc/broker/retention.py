"""Periodic work on logs: removes segments beyond their rules, and applies changed rules."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from nsqc.broker.broker import Broker
from nsqc.log import Log

EVERY_S = 0.5  # between two checks of the logs with more than one segment


class Retention:
    """Maintains a broker's logs, in slices."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker, log: Log):
        self._loop = loop
        self._broker = broker
        self._log = log
        self._work: list[Iterator[None]] = []
        self._timer = loop.call_later(EVERY_S, self._tick)
        self._running = False
        self._closed = False

    def rule_changed(self, name: bytes | None) -> None:
        """The rule of a topic has changed; None: all topics may be affected."""
        self._begin(self._broker.rule_changed(name))

    def channel_rule_changed(self, name: bytes | None) -> None:
        """The rule of a channel, TOPIC/CHANNEL, has changed; None: all channels may be affected."""
        self._begin(self._broker.channel_rule_changed(name))

    def close(self) -> None:
        """Stops the checks."""
        self._closed = True
        self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(EVERY_S, self._tick)
        if not self._work:
            self._begin(self._broker.retain())

    def _begin(self, work: Iterator[None]) -> None:
        self._work.append(work)
        if not self._running:
            self._running = True
            self._broker.slicer.call(self._step)

    def _step(self) -> bool:
        """Runs a slice; returns whether work remains."""
        while self._work and not self._closed:
            try:
                if next(self._work[0], self) is self:
                    self._work.pop(0)
            except Exception as error:
                # The next check starts over: a generator that has raised cannot continue.
                self._work.pop(0)
                self._log.error("LOG: failed to remove segments or to follow a rule - %r", error)
            if self._broker.slicer.is_over():
                return True
        self._running = False
        return False
