"""The log: nsqd's line format on stderr, written by a thread: an unread pipe never stops the daemon."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import Final

DEBUG, INFO, WARN, ERROR, FATAL = 1, 2, 3, 4, 5
WORDS = {DEBUG: "DEBUG", INFO: "INFO", WARN: "WARNING", ERROR: "ERROR", FATAL: "FATAL"}
# As in --log-level, the config file and PUT /config/log_level; their numbers are nsqd's.
LEVELS: Final = {"debug": DEBUG, "info": INFO, "warn": WARN, "error": ERROR, "fatal": FATAL}
MAX_WAITING = 2 * 1024 * 1024  # characters; beyond that lines are dropped and counted
MAX_LINE = 16 * 1024  # characters of one line; clients determine parts of some, and may send megabytes
CLOSE_SECONDS = 1.0


class Log:
    """Writes lines of level and above, as `PREFIXdate time LEVEL: text`. Thread-safe."""

    def __init__(self, prefix: str = "[nsqd] ", level: int = INFO, descriptor: int = 2):
        self.level = level
        self._prefix = prefix
        self._descriptor = descriptor
        self._stamp: tuple[int, str] = (0, "")
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        # Under the condition's lock:
        self._waiting: list[str] = []
        self._size = 0
        self._dropped = 0
        self._writing = False

    def debug(self, text: str, *arguments: object) -> None:
        """Details, for finding a fault."""
        if self.level <= DEBUG:
            self._add(DEBUG, text, arguments)

    def info(self, text: str, *arguments: object) -> None:
        """Normal operation."""
        if self.level <= INFO:
            self._add(INFO, text, arguments)

    def warn(self, text: str, *arguments: object) -> None:
        """Something is wrong, and the daemon copes."""
        if self.level <= WARN:
            self._add(WARN, text, arguments)

    def error(self, text: str, *arguments: object) -> None:
        """Something failed."""
        if self.level <= ERROR:
            self._add(ERROR, text, arguments)

    def fatal(self, text: str, *arguments: object) -> None:
        """The process ends because of this."""
        self._add(FATAL, text, arguments)

    def close(self) -> None:
        """Waits until everything is written, but only for a moment: perhaps nobody reads."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._dropped or self._writing), CLOSE_SECONDS)

    def _add(self, level: int, text: str, arguments: tuple[object, ...]) -> None:
        # This early check saves formatting while nobody reads; the one under the lock decides.
        line = "" if self._size >= MAX_WAITING else self._line(level, text % arguments if arguments else text)
        with self._changed:
            if not line or self._size + len(line) > MAX_WAITING:
                self._dropped += 1
                self._changed.notify_all()  # the queue may have been emptied since the early check
                return
            self._waiting.append(line)
            self._size += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="nsqc-log", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _line(self, level: int, text: str) -> str:
        return f"{self._prefix}{self._now()} {WORDS[level]}: {one_line(text)}\n"

    def _now(self) -> str:
        seconds, micros = divmod(time.time_ns() // 1000, 1_000_000)
        if self._stamp[0] != seconds:
            self._stamp = (seconds, time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(seconds)))
        return f"{self._stamp[1]}.{micros:06d}"

    # ------------------------------------------------------------------ the thread

    def _write(self) -> None:
        while True:
            self._put("".join(self._take()).encode("utf-8", "backslashreplace"))

    def _take(self) -> list[str]:
        """The waiting lines, and one about those dropped after them."""
        with self._changed:
            self._writing = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._dropped)
            lines, self._waiting, self._size, self._writing = self._waiting, [], 0, True
            dropped, self._dropped = self._dropped, 0
        if dropped:
            lines.append(self._line(WARN, f"LOG: {dropped} lines dropped, stderr was not read"))
        return lines

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left):]
            except BlockingIOError:
                # Another process that shares the terminal or pipe has made it non-blocking.
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
            except OSError:
                return


def one_line(text: str) -> str:
    """Makes text fit for one line of the log: no line ends, no terminal controls, no megabytes."""
    if len(text) > MAX_LINE:
        text = f"{text[:MAX_LINE]}... ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
