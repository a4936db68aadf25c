"""The terminal: keys in, lines out. Only changed lines are written."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import tty
from types import FrameType
from typing import Any

from nsqc.tools.errors import ToolError
from nsqc.tools.output import STDOUT

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"      # alternate screen, no cursor, no wrapping
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
# Terminals' sequences for keys, and their names.
SEQUENCES = {
    "[A": "up", "OA": "up", "[B": "down", "OB": "down", "[C": "right", "OC": "right", "[D": "left", "OD": "left",
    "[5~": "pgup", "[6~": "pgdn", "[H": "home", "OH": "home", "[1~": "home", "[7~": "home", "[F": "end", "OF": "end",
    "[4~": "end", "[8~": "end", "[Z": "backtab", "[3~": "delete",
}
NAMES = {"\t": "tab", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x1b": "esc",
         "\x0c": "redraw", "\x04": "q"}
ESCAPE_S = 0.05     # timeout for the rest of a sequence


class Terminal:
    """Use in a with block. Raises ToolError if stdin or stdout is not a terminal."""

    def __init__(self) -> None:
        if not os.isatty(0) or not os.isatty(STDOUT):
            raise ToolError("needs a terminal; `nsqc topic list --json` and `nsqc stat --json` are for scripts")
        self.resized = self.suspended = False
        self._lines: list[str] = []
        self._read, self._write = os.pipe()
        for descriptor in (self._read, self._write):
            os.set_blocking(descriptor, False)
        self._rest = b""
        encoding = (sys.stdout.encoding or "").lower().replace("-", "")
        self.unicode = encoding == "utf8"

    def __enter__(self) -> Terminal:
        # Any: termios' form
        self._before: list[Any] = termios.tcgetattr(0)
        self._handlers = {number: signal.signal(number, handler) for number, handler in (
            (signal.SIGWINCH, self._changed), (signal.SIGTSTP, self._stopped))}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def _enter(self) -> None:
        # ^C stays a signal.
        tty.setcbreak(0, termios.TCSANOW)
        self._put(ENTER)
        self._lines = []

    def _leave(self) -> None:
        self._put(LEAVE)
        termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    def _changed(self, number: int, frame: FrameType | None) -> None:
        self.resized = True

    def _stopped(self, number: int, frame: FrameType | None) -> None:
        self.suspended = True

    def suspend(self) -> None:
        """^Z: stops the process with the terminal restored; returns when it resumes."""
        self.suspended = False
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            return tuple(os.get_terminal_size(STDOUT))      # type: ignore[return-value]
        except OSError:
            return tuple(shutil.get_terminal_size())        # type: ignore[return-value]

    # ------------------------------------------------------------------ keys

    def wait(self, seconds: float, other: int) -> list[str]:
        """Keys pressed within this many seconds; none if another descriptor is readable first, or a signal has arrived.
        `closed`: the terminal is gone."""
        poll = select.poll()
        for descriptor in (0, self._read, other):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        if self._read in ready:
            os.read(self._read, 4096)
        return self._keys() if 0 in ready else []

    def _keys(self) -> list[str]:
        data = os.read(0, 1024)
        if not data:
            return ["closed"]
        data = self._rest + data
        if data.endswith(b"\x1b") and select.select([0], [], [], ESCAPE_S)[0]:
            data += os.read(0, 64)
        text = data.decode(errors="ignore")
        self._rest = b"" if text else data[-3:]
        return keys_of(text)

    # ------------------------------------------------------------------ lines

    def show(self, lines: list[str]) -> None:
        """Displays these lines."""
        if self.resized:
            self.resized = False
            self._lines = []
        parts = ["\x1b[2J"] if not self._lines else []
        for at, line in enumerate(lines):
            if at >= len(self._lines) or self._lines[at] != line:
                parts.append(f"\x1b[{at + 1};1H{line}\x1b[0m\x1b[K")
        if len(self._lines) > len(lines):
            parts.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        self._lines = lines
        if parts:
            self._put("".join(parts))

    def redraw(self) -> None:
        """Redraws everything the next time."""
        self._lines = []

    def _put(self, text: str) -> None:
        rest = text.encode(errors="replace")
        while rest:
            rest = rest[os.write(STDOUT, rest):]


def keys_of(text: str) -> list[str]:
    """Keys by name, or the characters themselves."""
    keys = []
    while text:
        if text[0] == "\x1b" and len(text) > 1:
            for sequence, name in SEQUENCES.items():
                if text.startswith(sequence, 1):
                    keys.append(name)
                    text = text[1 + len(sequence):]
                    break
            else:
                if text[1] not in "[O":
                    keys.append("esc")
                    text = text[1:]
                    continue
                # An unknown sequence ends with a letter or a tilde.
                end = next((at for at in range(2, len(text)) if text[at].isalpha() or text[at] == "~"), len(text) - 1)
                text = text[end + 1:]
            continue
        keys.append(NAMES.get(text[0], text[0]))
        text = text[1:]
    return keys
