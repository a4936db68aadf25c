"""Shared by commands: exit codes, and output to stdout."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

EXIT_REFUSED, EXIT_USAGE = 1, 2
STDOUT = 1


class NotWritten(OSError):
    """Stdout cannot be written."""


class Stdout:
    """Stdout for printing. Raises NotWritten on failure; a reader that stops early (`--help | head`) is not a
    failure."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes text."""
        if text != "":      # typer tests the stream with an empty text, and ignores errors
            with writing():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes the buffer."""
        with writing():
            self._stream.flush()

    def __getattr__(self, name: str) -> object:     # everything else of a text stream
        return getattr(self._stream, name)


@contextmanager
def writing() -> Iterator[None]:
    """Converts failures to NotWritten. Then nothing else is written: it would fail again at the end of the
    process."""
    try:
        yield
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
        if not isinstance(error, BrokenPipeError):
            raise NotWritten(error.errno, error.strerror, "stdout") from None


def fail(command: str, text: str, code: int = EXIT_REFUSED) -> int:
    """Prints an error of a command; returns the exit code."""
    hint = f" (see nsqc {command} --help)" if code == EXIT_USAGE else ""
    print(f"nsqc {command}: {text}{hint}", file=sys.stderr)
    return code


def refused(error: NotWritten) -> int:
    """Reports that stdout cannot be written; returns the exit code."""
    print(f"nsqc: stdout: {error.strerror}", file=sys.stderr)
    return EXIT_REFUSED


def print_text(text: str) -> None:
    """Prints text, with terminal controls escaped: names in damaged files may contain any bytes. Raises SystemExit on
    failure."""
    from nsqc.log.formats import visible_lines  # here: --help does not need it

    try:
        if sys.stdout is None:
            raise NotWritten(errno.EBADF, os.strerror(errno.EBADF), "stdout")
        with writing():
            print(visible_lines(text), flush=True)
    except NotWritten as error:
        raise SystemExit(refused(error)) from None
