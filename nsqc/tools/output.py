"""What tools print: text and JSON on stdout, one line of errors on stderr, colours only on a terminal."""

from __future__ import annotations

import contextlib
import os
import sys

STDIN, STDOUT, STDERR = 0, 1, 2
LONGEST_NOTE = 2000     # characters of a line on stderr: some of its text is what others have sent
BOLD, DIM, RED, YELLOW, GREEN = "1", "2", "31", "33", "32"


class PipeClosed(Exception):
    """Whoever read stdout has gone."""


def write(text: str) -> None:
    """Text on stdout. Raises PipeClosed, OSError."""
    write_bytes(text.encode(errors="surrogateescape"))


def line(text: str) -> None:
    """A line on stdout. Raises PipeClosed, OSError."""
    write(f"{text}\n")


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
    import json

    line(json.dumps(value, ensure_ascii=False))


def error(place: str, text: str) -> None:
    """One line on stderr, whatever the text has in it."""
    note(f"{place}: {text}")


def note(text: str) -> None:
    """One line on stderr; nobody may be reading it."""
    if len(text) > LONGEST_NOTE:
        text = f"{text[:LONGEST_NOTE]}... ({len(text) - LONGEST_NOTE} more characters)"
    clean = " ".join(text.split()) if "\n" in text else text
    with contextlib.suppress(OSError):
        os.write(STDERR, f"{printable(clean)}\n".encode(errors="backslashreplace"))


def printable(text: str) -> str:
    """Without characters that a terminal would obey: names and errors come from others."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def is_terminal(descriptor: int = STDOUT) -> bool:
    """Whether a person looks at it."""
    return os.isatty(descriptor)


def has_colours(descriptor: int = STDOUT) -> bool:
    """Whether to use colours there; https://no-color.org."""
    return is_terminal(descriptor) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, colour: str, descriptor: int = STDOUT) -> str:
    """Text in a colour where there are colours."""
    return f"\x1b[{colour}m{text}\x1b[0m" if has_colours(descriptor) else text


def table(rows: list[list[str]], right: frozenset[int] = frozenset()) -> str:
    """Rows as columns of even width, without trailing blanks; right: columns of numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) if at in right else cell.ljust(width)
                               for at, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
                     for row in rows)


def confirm(question: str) -> bool:
    """Asks on the terminal; False without one."""
    if sys.stdin is None or not is_terminal(STDIN) or not is_terminal(STDERR):
        return False
    os.write(STDERR, f"{printable(question)} [y/N] ".encode())
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def note_lines(text: str) -> None:
    """Lines of ours on stderr; nobody may be reading them."""
    with contextlib.suppress(OSError):
        os.write(STDERR, f"{text}\n".encode(errors="backslashreplace"))
