"""Runs the daemon with a loop that logs its slow callbacks.

The first argument names a file, which gets a line for each callback above 0.05 ms: monotonic time, nanoseconds of
processor time, and its name. The other arguments are those of `nsqc serve`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextvars import Context
from typing import Any, TextIO

import uvloop

LEAST_NS = 50_000


class TimedLoop(uvloop.Loop):
    """Times callbacks passed to call_soon(): tasks, slices, commits."""

    lines: TextIO

    # Any: whatever is called
    def call_soon(self, callback: Callable[..., Any], *arguments: Any, context: Context | None = None) -> Any:
        """As the loop's own."""

        def call() -> None:
            began = time.thread_time_ns()
            try:
                callback(*arguments)
            finally:
                took = time.thread_time_ns() - began
                if took > LEAST_NS:
                    self.lines.write(f"{time.monotonic():.6f} {took} {getattr(callback, '__qualname__', callback)!r}\n")

        return super().call_soon(call, context=context)


def main() -> None:
    """The daemon."""
    lines = open(sys.argv.pop(1), "w", buffering=1)  # noqa: SIM115

    def new_event_loop() -> TimedLoop:
        loop = TimedLoop()
        loop.lines = lines
        return loop

    uvloop.new_event_loop = new_event_loop
    from nsqc.commands.start import serve

    sys.exit(serve(sys.argv[1:]))


if __name__ == "__main__":
    main()
