"""What commands have in common: exit codes, and text for stdout."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

EXIT_REFUSED, EXIT_USAGE = 1, 2
STDOUT = 1


class NotWritten(OSError):
    """Stdout cannot be written."""


class Stdout:
    """Stdout for printing. Raises NotWritten where that fails; that a reader has left early (`--help | head`) is no
    failure."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        """Some text."""
        if text != "":      # with which typer tries what the stream takes, and ignores errors
            with writing():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Writes what is buffered."""
        with writing():
            self._stream.flush()

    # Any: everything else of a text stream
    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def writing() -> Iterator[None]:
    """Turns what may fail into NotWritten. Nothing else is written then: it would fail again at the end of the
    process."""
    try:
        yield
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
        if not isinstance(error, BrokenPipeError):
            raise NotWritten(error.errno, error.strerror, "stdout") from None


def refused(error: NotWritten) -> int:
    """Says why stdout cannot be written; the exit code."""
    print(f"nsqc: stdout: {error.strerror}", file=sys.stderr)
    return EXIT_REFUSED


def print_text(text: str) -> None:
    """Prints text. Raises SystemExit if that cannot be done."""
    try:
        if sys.stdout is None:
            raise NotWritten(errno.EBADF, os.strerror(errno.EBADF), "stdout")
        with writing():
            print(text, flush=True)
    except NotWritten as error:
        raise SystemExit(refused(error)) from None
