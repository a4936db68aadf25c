"""A program in a real terminal: a pseudo terminal, and its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

import pyte

from tests.support.patience import WAIT_SECONDS


class InTerminal:
    """Runs `nsqc WORDS`, or a command, in a terminal with this many columns and lines."""

    def __init__(self, *words: str, columns: int = 100, lines: int = 24, environment: dict[str, str] | None = None,
                 command: list[str] | None = None):
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.environ.update({"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **(environment or {})})
            command = command or [sys.executable, "-m", "nsqc", *words]
            os.execv(command[0], command)
        self.resize(columns, lines)
        self.output = b""
        self._code: int | None = None

    def resize(self, columns: int, lines: int) -> None:
        """Another size, as when a window is dragged."""
        self.screen.resize(lines, columns)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self._terminal, keys.encode())

    def read(self, seconds: float = 0.05) -> bool:
        """Reads the program's output; False: it has ended."""
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._terminal, 65536)
        except OSError:
            data = b""
        self.output += data
        self._stream.feed(data)
        return bool(data)

    @property
    def text(self) -> str:
        """The screen as text."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, condition, what: str = "") -> str:
        """Reads until condition(text) holds for the screen, or a text is on it; returns the text of the screen."""
        holds = condition if callable(condition) else lambda text: condition in text
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            if holds(self.text):
                return self.text
            self.read()
        raise AssertionError(f"{what or condition} was not shown:\n{self.text}")

    def without(self, text: str) -> str:
        """Reads until the text is no longer on the screen."""
        return self.until(lambda shown: text not in shown, f"no {text!r}")

    def end(self) -> int:
        """Waits for the end; returns the exit code."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self._code is None and time.monotonic() < deadline:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                while self.read() and time.monotonic() < deadline:
                    pass        # its last output
        assert self._code is not None, "it has not ended"
        return self._code

    def attributes(self) -> list:
        """Of the terminal."""
        return termios.tcgetattr(self._terminal)

    def close(self) -> None:
        """Ends it, if it still runs."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._terminal)
