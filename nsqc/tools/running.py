"""Runs a tool: its signals, errors, exit code."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from nsqc.client.connection import Waker
from nsqc.client.errors import AuthError, BadAddress, BadName, ClientError, ConnectError, LookupFailed
from nsqc.log.formats import visible, visible_json, visible_lines
from nsqc.tools.declare import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NO_NODE,
    EXIT_PIPE,
    EXIT_TERMINATED,
    EXIT_USAGE,
    ToolError,
    UsageError,
)

# ====================================================================== stopping
# Signals as a flag, for tools that must complete work in progress: SIGINT and SIGTERM request a stop.

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


# ====================================================================== output
# Output of tools: text and JSON on stdout, one line of errors on stderr.

STDIN, STDOUT, STDERR = 0, 1, 2
LONGEST_NOTE = 2000     # of a line on stderr: parts of it may come from other programs


class PipeClosed(Exception):
    """The reader of stdout has gone."""


# All text printed by tools passes through these two, which escape terminal controls: some of it comes from nodes.
def write(text: str) -> None:
    """Text of several lines on stdout, without terminal controls. Raises PipeClosed, OSError."""
    write_bytes(visible_lines(text).encode())


def line(text: str) -> None:
    """One line on stdout, for any text. Raises PipeClosed, OSError."""
    write_bytes(f"{visible(text)}\n".encode())


def write_bytes(data: bytes | bytearray | memoryview) -> None:
    """Bytes on stdout, unbuffered and complete. Raises PipeClosed, OSError."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(STDOUT, rest):]
    except BrokenPipeError:
        raise PipeClosed from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, "stdout") from None


def as_json(value: object) -> None:
    """JSON on stdout, in one line. Raises PipeClosed, OSError."""
    line(json_line(value))


def json_line(value: object) -> str:
    """JSON in one line, with terminal controls escaped."""
    import json

    return visible_json(json.dumps(value, ensure_ascii=False))


def print_error(place: str, text: str) -> None:
    """One line on stderr, for any text."""
    note(f"{place}: {text}")


def note(text: str) -> None:
    """One line on stderr, even if it has no reader."""
    if len(text) > LONGEST_NOTE:
        text = f"{text[:LONGEST_NOTE]}... ({len(text) - LONGEST_NOTE} more characters)"
    clean = " ".join(text.split()) if "\n" in text else text
    with contextlib.suppress(OSError):
        os.write(STDERR, f"{visible(clean)}\n".encode())


def is_terminal(descriptor: int = STDOUT) -> bool:
    """Whether stdout is a terminal."""
    return os.isatty(descriptor)


def table(rows: list[list[str]], right: frozenset[int] = frozenset()) -> str:
    """Rows as lines with aligned columns, without trailing blanks; right: numeric columns."""
    rows = [list(map(visible, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join("  ".join(cell.rjust(width) if at in right else cell.ljust(width)
                             for at, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip() + "\n"
                   for row in rows)


def moment(ns: object) -> str:
    """Nanoseconds since 1970 in UTC, to the millisecond; empty without a time."""
    from datetime import UTC, datetime

    if not isinstance(ns, int):
        return ""
    try:
        return datetime.fromtimestamp(ns // 10**6 / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(ns)      # from a malicious publisher


def confirm(question: str) -> bool:
    """Asks on the terminal; False without one."""
    if sys.stdin is None or not is_terminal(STDIN) or not is_terminal(STDERR):
        return False
    os.write(STDERR, f"{visible(question)} [y/N] ".encode())
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def note_lines(text: str) -> None:
    """Trusted lines on stderr, even if it has no reader."""
    with contextlib.suppress(OSError):
        os.write(STDERR, f"{visible_lines(text)}\n".encode())


# ====================================================================== stdout
# Non-blocking stdout: its reader may be slow, or read nothing for hours.

PIPE_BYTES = 4096       # a pipe that poll calls writable takes this much without blocking


class Stdout:
    """Bytes queued for stdout, in order. Regular files are written at once; pipes and terminals are reopened in
    non-blocking mode, because that flag is shared with other processes. Raises OSError."""

    def __init__(self) -> None:
        mode = os.fstat(STDOUT).st_mode
        if fcntl.fcntl(STDOUT, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))    # the process was started without stdout
        self._waiting: list[memoryview] = []
        self.unwritten = 0      # bytes
        self._is_file = stat.S_ISREG(mode)
        self._descriptor, self._most = STDOUT, 1 << 30
        if not self._is_file:
            try:
                self._descriptor = os.open(f"/proc/self/fd/{STDOUT}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            except OSError:
                self._most = PIPE_BYTES     # a socket, or another user's file: small writes do not block

    def put(self, data: bytes) -> None:
        """Queues bytes, and writes as much as stdout accepts. Raises PipeClosed, OSError."""
        self._waiting.append(memoryview(data))
        self.unwritten += len(data)
        if len(self._waiting) == 1:
            self.flush()

    def flush(self) -> bool:
        """Writes as much as stdout accepts now; returns whether all is written. Raises PipeClosed, OSError."""
        try:
            while self._waiting:
                piece = self._waiting[0]
                if self._most == PIPE_BYTES and not self._is_writable():
                    return False
                count = os.write(self._descriptor, piece[:self._most])
                self.unwritten -= count
                if count == len(piece):
                    del self._waiting[0]
                else:
                    self._waiting[0] = piece[count:]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            raise PipeClosed from None
        return True

    def check(self) -> None:
        """Raises PipeClosed if the reader has gone. A poll reports that even without requested events."""
        if not self._is_file:
            poll = select.poll()
            poll.register(self._descriptor, 0)
            if poll.poll(0):
                raise PipeClosed

    def _is_writable(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(0))

    def fileno(self) -> int:
        """For a poll."""
        return self._descriptor


# ====================================================================== progress
# A progress line on the terminal.

EVERY_SECONDS = 0.2
WIDTH = 30


class Progress:
    """total: bytes of the input, 0 if unknown. Shows nothing unless is_shown."""

    def __init__(self, place: str, total: int, is_shown: bool):
        self._place, self._total, self._is_shown = place, total, is_shown
        self._began = self._then = time.monotonic()
        self._visible = False

    def show(self, messages: int, done: int) -> None:
        """Updates messages and input bytes so far."""
        now = time.monotonic()
        if not self._is_shown or now - self._then < EVERY_SECONDS:
            return
        self._then = now
        rate = messages / max(now - self._began, 1e-9)
        text = f"{self._place}: {messages:,} messages, {rate:,.0f}/s"
        if self._total:
            share = min(done / self._total, 1.0)
            filled = round(share * WIDTH)
            bar = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {share:4.0%}"
            text = f"{self._place}: {bar}  {messages:,} messages, {rate:,.0f}/s"
        columns = shutil.get_terminal_size().columns
        os.write(STDERR, f"\r\x1b[K{text[:columns - 1]}".encode())
        self._visible = True

    def clear(self) -> None:
        """Removes it."""
        if self._visible:
            os.write(STDERR, b"\r\x1b[K")
            self._visible = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


# ====================================================================== running

class Stopped(BaseException):
    """A signal that ends the tool; raised in the main thread, so that with blocks and finally run."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number

    @property
    def code(self) -> int:
        """The exit code, unless the tool sets another."""
        return EXIT_INTERRUPTED if self.number == signal.SIGINT else EXIT_TERMINATED


def guarded(place: str, work: Callable[[], int]) -> int:
    """Runs work with signals as exceptions, and errors as one line on stderr; returns the exit code. place: its
    prefix."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        return work()
    except Stopped as stopped:
        return stopped.code
    except PipeClosed:
        return EXIT_PIPE
    except UsageError as error:
        where = error.where or place
        print_error(place, f"{error} (see {where} --help)" if error.where else str(error))
        return error.code
    except ToolError as error:
        print_error(place, str(error))
        return error.code
    except ClientError as error:
        print_error(place, str(error))
        return code_of(error)
    except OSError as error:
        name = f"{error.filename}: " if isinstance(error.filename, str) else ""
        print_error(place, f"{name}{error.strerror or error}")
        return EXIT_FAILED
    except MemoryError:
        print_error(place, "out of memory")
        return EXIT_FAILED
    finally:
        # From here on the process is ending; a second signal must not turn that into a traceback.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def code_of(error: ClientError) -> int:
    """The exit code for an error of nsqc.client."""
    if isinstance(error, (BadName, BadAddress)):
        return EXIT_USAGE
    if isinstance(error, AuthError):
        return EXIT_FAILED
    return EXIT_NO_NODE if isinstance(error, (ConnectError, LookupFailed)) else EXIT_FAILED


def stop(number: int, frame: FrameType | None) -> NoReturn:
    """A signal handler. A second signal ends the process at once."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)
    raise Stopped(number)
