"""What a job says while it runs: on a terminal one line that is redrawn, in a pipe a line every few seconds.

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

REDRAW_SECONDS = 0.25
LINE_SECONDS = 5.0
RATE_SECONDS = 5.0      # over which a rate is taken
PREFIX = "nsqc spark: "


class Progress:
    """Says what the job is doing, from says() on until quiet(). Thread-safe."""

    def __init__(self) -> None:
        self.done: Callable[[], str] = lambda: "nothing was done"       # so far, where the job is stopped or fails
        self.count: Callable[[], int] = lambda: 0       # messages published or archived so far
        self._doing: Callable[[], str] = lambda: ""
        self._since = self._said = 0.0
        self._drawn = self._is_last = False
        self._mutex = threading.RLock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def says(self, doing: str | Callable[[], str]) -> None:
        """What is being done from now on, as a text or a call that makes one, which may take a few milliseconds."""
        with self._mutex:
            if self._is_last:
                return
            self._doing = doing if callable(doing) else lambda: doing
            self._since = time.monotonic()
            self._say()
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()

    def stopping(self) -> None:
        """A signal has come: whatever is being done still, this is what is said of it."""
        with self._mutex:
            self.says("stopping…")
            self._is_last = True

    def quiet(self) -> None:
        """Nothing more is said. Idempotent."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._clear()

    def tell(self, text: str) -> None:
        """A line of results."""
        with self._mutex:
            self._clear()
            print(text, flush=True)

    def note(self, text: str) -> None:
        """A line for who watches: a warning, or what was not looked at."""
        with self._mutex:
            self._clear()
            print(f"{PREFIX}{text}", file=sys.stderr, flush=True)

    # ------------------------------------------------------------------ the line

    def _run(self) -> None:
        while not self._ended.wait(REDRAW_SECONDS):
            with self._mutex:
                if is_terminal() or time.monotonic() - self._said >= LINE_SECONDS:
                    self._say()

    def _say(self) -> None:
        self._said = time.monotonic()
        text = f"{self._doing()}, {clock(self._said - self._since)}" if self._said - self._since >= 1 else self._doing()
        # A closed stderr, as of `| head`, must not end the job.
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
    """How fast a count has grown lately."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, count: int) -> float:
        """A second, over the last seconds; 0 while that cannot be known."""
        now = time.monotonic()
        self._seen.append((now, count))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_SECONDS:
            self._seen.popleft()
        (start, first) = self._seen[0]
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
    """Whether progress can be redrawn."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Columns, so that a line is not broken: what is broken cannot be redrawn."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
