"""SIGHUP."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from nsqc.process.terminal import Terminal


class Hangup:
    """Handles SIGHUP: defers it until begin(), which makes up for an earlier signal, and ignores it after end().

    Under nohup SIGHUP is ignored from the start, and stays ignored unless it means reading files again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._action: Callable[[], None] | None = None
        self._terminal: Terminal | None = None
        self._missed = False
        self._nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        loop.add_signal_handler(signal.SIGHUP, self._received)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])

    def begin(self, stop: Callable[[], None], reload: Callable[[], None] | None) -> None:
        """From now on a signal reads files again, or stops the server if its terminal has just closed. Without a
        reload, as there are no such files, it stops the server, but not under nohup."""
        if reload is None:
            self._action = None if self._nohup else stop
        else:
            # Under nohup the server survives its terminal.
            terminal = self._terminal = None if self._nohup else Terminal(self._loop)
            self._action = lambda: stop() if terminal and terminal.has_just_closed() else reload()
        if self._missed:
            self._received()

    def end(self) -> None:
        """Ignores the signal from now on."""
        self._action = None
        if self._terminal is not None:
            self._terminal.close()

    def _received(self) -> None:
        self._missed = True
        if self._action is not None:
            self._action()
