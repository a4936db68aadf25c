"""What tools print: text and JSON on stdout, one line of errors on stderr."""

from __future__ import annotations

import contextlib
import os
import sys

from nsqc.log.visible import visible, visible_json, visible_lines

STDIN, STDOUT, STDERR = 0, 1, 2
LONGEST_NOTE = 2000     # characters of a line on stderr: some of its text is what others have sent


class PipeClosed(Exception):
    """Whoever read stdout has gone."""


# All text that tools print passes through these two, which escape terminal controls: some of it comes from nodes.
def write(text: str) -> None:
    """Text of several lines on stdout, without terminal controls. Raises PipeClosed, OSError."""
    write_bytes(visible_lines(text).encode())


def line(text: str) -> None:
    """One line on stdout, whatever the text contains. Raises PipeClosed, OSError."""
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
    """One line on stderr, whatever the text has in it."""
    note(f"{place}: {text}")


def note(text: str) -> None:
    """One line on stderr; nobody may be reading it."""
    if len(text) > LONGEST_NOTE:
        text = f"{text[:LONGEST_NOTE]}... ({len(text) - LONGEST_NOTE} more characters)"
    clean = " ".join(text.split()) if "\n" in text else text
    with contextlib.suppress(OSError):
        os.write(STDERR, f"{visible(clean)}\n".encode())


def is_terminal(descriptor: int = STDOUT) -> bool:
    """Whether a person looks at it."""
    return os.isatty(descriptor)


def table(rows: list[list[str]], right: frozenset[int] = frozenset()) -> str:
    """Rows as lines of columns of even width, without trailing blanks; right: columns of numbers."""
    rows = [list(map(visible, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join("  ".join(cell.rjust(width) if at in right else cell.ljust(width)
                             for at, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip() + "\n"
                   for row in rows)


def confirm(question: str) -> bool:
    """Asks on the terminal; False without one."""
    if sys.stdin is None or not is_terminal(STDIN) or not is_terminal(STDERR):
        return False
    os.write(STDERR, f"{visible(question)} [y/N] ".encode())
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def note_lines(text: str) -> None:
    """Lines of ours on stderr; nobody may be reading them."""
    with contextlib.suppress(OSError):
        os.write(STDERR, f"{visible_lines(text)}\n".encode())
