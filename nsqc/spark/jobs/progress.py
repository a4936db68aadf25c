"""The output of a running job: on a terminal one redrawn line, in a pipe a line every few seconds.

Progress and notes go to stderr, results to stdout.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from nsqc.log.visible import visible, visible_lines

REDRAW_SECONDS = 0.25
LINE_SECONDS = 5.0
RATE_SECONDS = 5.0      # over which a rate is averaged
PREFIX = "nsqc spark: "


class Progress:
    """Shows the job's activity, from show() to end(). Thread-safe."""

    def __init__(self) -> None:
        self.summary: Callable[[], str] = lambda: "nothing was done"    # so far, for a job that is stopped or fails
        self.count: Callable[[], int] = lambda: 0       # messages published or archived so far
        self._doing: Callable[[], str] = lambda: ""
        self._since = self._shown = 0.0
        self._drawn = self._is_last = False
        self._mutex = threading.RLock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, doing: str | Callable[[], str]) -> None:
        """Shows this text from now on, or the call's result, which may take a few milliseconds."""
        with self._mutex:
            if self._is_last:
                return
            self._doing = doing if callable(doing) else lambda: doing
            self._since = time.monotonic()
            self._draw()
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()

    def stopping(self) -> None:
        """After a signal: shows only this from now on."""
        with self._mutex:
            self.show("stopping…")
            self._is_last = True

    def end(self) -> None:
        """Shows nothing from now on. Idempotent."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._clear()

    def result(self, text: str) -> None:
        """Prints a line of results."""
        with self._mutex:
            self._clear()
            print(visible_lines(text), flush=True)

    def note(self, text: str) -> None:
        """Prints a line for the user: a warning, or a check that was not possible."""
        with self._mutex:
            self._clear()
            print(f"{PREFIX}{visible(text)}", file=sys.stderr, flush=True)

    # ------------------------------------------------------------------ the line

    def _run(self) -> None:
        while not self._ended.wait(REDRAW_SECONDS):
            with self._mutex:
                if is_terminal() or time.monotonic() - self._shown >= LINE_SECONDS:
                    self._draw()

    def _draw(self) -> None:
        self._shown = time.monotonic()
        elapsed = self._shown - self._since
        text = f"{self._doing()}, {clock(elapsed)}" if elapsed >= 1 else self._doing()
        # A closed stderr must not end the job.
        with suppress(OSError, ValueError):
            if is_terminal():
                width = terminal_width()
                sys.stderr.write(f"\r\x1b[K{PREFIX}{text}"[:width + 3])
                self._drawn = True
            else:
                sys.stderr.write(f"{PREFIX}{text}\n")
            sys.stderr.flush()

    def _clear(self) -> None:
        with self._mutex, suppress(OSError, ValueError):
            if self._drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
            self._drawn = False


class Rate:
    """The recent growth rate of a count."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def of(self, count: int) -> float:
        """Growth per second over the last seconds; 0 if unknown."""
        now = time.monotonic()
        self._samples.append((now, count))
        while len(self._samples) > 2 and now - self._samples[1][0] >= RATE_SECONDS:
            self._samples.popleft()
        start, first = self._samples[0]
        return (count - first) / (now - start) if now - start > 0.1 else 0.0


def counted(verb: str, count: Callable[[], int], rate: Rate, total: int | None = None) -> Callable[[], str]:
    """For Progress.show(): published 12,000 of 100,000 messages, 6,100 a second."""
    def text() -> str:
        number = count()
        of = f" of {total:,}" if total is not None else ""
        return f"{verb} {number:,}{of} messages, {rate.of(number):,.0f} a second"
    return text


def clock(seconds: float) -> str:
    """0:07, 1:02:03."""
    whole = int(seconds)
    minutes = f"{whole // 60 % 60}:{whole % 60:02d}"
    return minutes if whole < 3600 else f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def is_terminal() -> bool:
    """Whether a line can be redrawn."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Columns of the terminal: a wrapped line cannot be redrawn."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
