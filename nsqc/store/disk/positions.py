"""The positions file of a disk queue.

    DEPTH
    READ_FILE,READ_OFFSET
    WRITE_FILE,WRITE_OFFSET
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

FORM = re.compile(rb"(-?\d{1,17})\n(\d{1,17}),(\d{1,17})\n(\d{1,17}),(\d{1,17})\n?")


class Positions(NamedTuple):
    """The number of waiting messages, and where reading and writing continue."""

    depth: int
    read_number: int
    read_at: int
    write_number: int
    write_at: int

    @property
    def read(self) -> tuple[int, int]:
        """File and offset of the next record to read."""
        return self.read_number, self.read_at

    @property
    def write(self) -> tuple[int, int]:
        """File and offset after the last record."""
        return self.write_number, self.write_at


def encode(depth: int, read_number: int, read_at: int, write_number: int, write_at: int) -> bytes:
    """The contents of the file."""
    return b"%d\n%d,%d\n%d,%d\n" % (depth, read_number, read_at, write_number, write_at)


def read(path: str) -> Positions | None:
    """Parses a positions file; None if it is missing or invalid."""
    try:
        # Non-blocking: a named pipe at this path must not block the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            form = FORM.fullmatch(os.read(descriptor, 200))
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return Positions(*map(int, form.groups())) if form else None
