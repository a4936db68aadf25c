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
    """How many messages wait, and where reading and writing continue."""

    depth: int
    read_number: int
    read_at: int
    write_number: int
    write_at: int

    @property
    def read(self) -> tuple[int, int]:
        """File and offset of the next record to be read."""
        return self.read_number, self.read_at

    @property
    def write(self) -> tuple[int, int]:
        """File and offset behind the last record."""
        return self.write_number, self.write_at


def encode(depth: int, read_number: int, read_at: int, write_number: int, write_at: int) -> bytes:
    """The contents of the file."""
    return b"%d\n%d,%d\n%d,%d\n" % (depth, read_number, read_at, write_number, write_at)


def read(path: str) -> Positions | None:
    """The positions in a file; None if it is missing or holds something else."""
    try:
        # Not blocking: a pipe that somebody has put there must not hold up the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            form = FORM.fullmatch(os.read(descriptor, 200))
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return Positions(*map(int, form.groups())) if form else None
