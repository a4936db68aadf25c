"""The log: lines in nsqd's form on stderr, written by a thread, so that an unread pipe never stops the daemon."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import Any

DEBUG, INFO, WARN, ERROR, FATAL = 1, 2, 3, 4, 5
WORDS = {DEBUG: "DEBUG", INFO: "INFO", WARN: "WARNING", ERROR: "ERROR", FATAL: "FATAL"}
MAX_WAITING = 10_000  # lines; above that they are dropped and counted
WRITE_BYTES = 65536
CLOSE_SECONDS = 1.0


class Log:
    """Writes lines of level and above, each as `PREFIXdate time LEVEL: text`."""

    def __init__(self, prefix: str = "[nsqd] ", level: int = INFO, descriptor: int = 2):
        self.level = level
        self._prefix = prefix
        self._descriptor = descriptor
        self._waiting: deque[str] = deque()
        self._dropped = 0
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._stamp: tuple[int, str] = (0, "")
        self._thread: threading.Thread | None = None

    def debug(self, text: str, *arguments: Any) -> None:
        """For whoever looks for a fault."""
        if self.level <= DEBUG:
            self._add(DEBUG, text, arguments)

    def info(self, text: str, *arguments: Any) -> None:
        """What happens."""
        if self.level <= INFO:
            self._add(INFO, text, arguments)

    def warn(self, text: str, *arguments: Any) -> None:
        """What should not be so."""
        if self.level <= WARN:
            self._add(WARN, text, arguments)

    def error(self, text: str, *arguments: Any) -> None:
        """What went wrong."""
        if self.level <= ERROR:
            self._add(ERROR, text, arguments)

    def fatal(self, text: str, *arguments: Any) -> None:
        """Why the process ends."""
        self._add(FATAL, text, arguments)

    def close(self) -> None:
        """Waits a moment until everything is written."""
        self._wake.set()
        self._idle.wait(CLOSE_SECONDS)

    def _add(self, level: int, text: str, arguments: tuple[Any, ...]) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._dropped += 1
            return
        line = text % arguments if arguments else text
        self._waiting.append(f"{self._prefix}{self._now()} {WORDS[level]}: {line}\n")
        if self._idle.is_set():
            self._idle.clear()
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="nsqc-log", daemon=True)
                self._thread.start()
            self._wake.set()

    def _now(self) -> str:
        seconds, micros = divmod(time.time_ns() // 1000, 1_000_000)
        if self._stamp[0] != seconds:
            self._stamp = (seconds, time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(seconds)))
        return f"{self._stamp[1]}.{micros:06d}"

    def _write(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._waiting:
                lines, size = [], 0
                while self._waiting and size < WRITE_BYTES:
                    lines.append(self._waiting.popleft())
                    size += len(lines[-1])
                if self._dropped:
                    dropped, self._dropped = self._dropped, 0
                    lines.append(f"{self._prefix}{self._now()} WARNING: {dropped} log lines were dropped, "
                                 "nobody read them\n")
                self._put("".join(lines).encode("utf-8", "backslashreplace"))
            self._idle.set()
            if self._waiting:
                # A line came between the last look and the flag.
                self._idle.clear()
                self._wake.set()

    def _put(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data):]
