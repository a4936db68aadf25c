"""Output of tools: text and JSON on stdout, one line of errors on stderr."""

from __future__ import annotations

import contextlib
import os
import sys

from nsqc.log.visible import visible, visible_json, visible_lines

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


def error(place: str, text: str) -> None:
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
