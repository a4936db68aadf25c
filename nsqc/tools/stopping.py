"""Signals as a flag, for tools that must complete work in progress: SIGINT and SIGTERM request a stop."""

from __future__ import annotations

import signal
from types import FrameType

from nsqc.client.waker import Waker
from nsqc.tools.errors import EXIT_INTERRUPTED, EXIT_TERMINATED

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Stop(Waker):
    """Use in a with block. number: the received signal, 0 for none; it wakes, for a poll that waits for several things.
    A second signal ends the process at once."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.hangups = 0        # SIGHUPs so far, if hear_hangup() was called

    def __enter__(self) -> Stop:
        self._before = {number: signal.signal(number, self._caught) for number in NUMBERS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if not self.number else signal.SIG_IGN)
        self.close()

    def __bool__(self) -> bool:
        return self.number != 0

    def hear_hangup(self) -> None:
        """Counts SIGHUP instead of being killed by it."""
        signal.signal(signal.SIGHUP, self._hung_up)

    def code(self, terminated: int = EXIT_TERMINATED) -> int:
        """The exit code; terminated: after SIGTERM. 0 without a signal."""
        return {0: 0, signal.SIGINT: EXIT_INTERRUPTED}.get(self.number, terminated)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        for each in NUMBERS:
            signal.signal(each, signal.SIG_DFL)
        self.wake()

    def _hung_up(self, number: int, frame: FrameType | None) -> None:
        self.hangups += 1
        self.wake()
