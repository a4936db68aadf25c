"""SIGHUP."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable


class Hangup:
    """Handles SIGHUP: defers it until begin(), which makes up for an earlier signal, and ignores it after end().

    Under nohup SIGHUP is ignored from the start, and stays ignored unless it means reading files again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._action: Callable[[], None] | None = None
        self._missed = False
        self.ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        loop.add_signal_handler(signal.SIGHUP, self._received)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])

    def begin(self, action: Callable[[], None]) -> None:
        """Calls action() for each signal from now on, and once if one arrived earlier."""
        self._action = action
        if self._missed:
            action()

    def end(self) -> None:
        """Ignores the signal from now on."""
        self._action = None

    def _received(self) -> None:
        self._missed = True
        if self._action is not None:
            self._action()
