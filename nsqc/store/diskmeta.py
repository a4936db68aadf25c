"""The positions file of a disk queue, and the names of its files.

    DEPTH
    READ_FILE,READ_OFFSET
    WRITE_FILE,WRITE_OFFSET
"""

from __future__ import annotations

import itertools
import os
import re

FORM = re.compile(rb"(-?\d+)\n(\d+),(\d+)\n(\d+),(\d+)\n?")
RETIRED = re.compile(r"\.diskqueue\.(?:meta|\d{6,})\.dat\.retired-\d+-\d+$")
numbers = itertools.count()


def encode(depth: int, read_number: int, read_at: int, write_number: int, write_at: int) -> bytes:
    """The text of the file."""
    return b"%d\n%d,%d\n%d,%d\n" % (depth, read_number, read_at, write_number, write_at)


def read(path: str) -> tuple[int, int, int, int, int] | None:
    """(depth, read file, offset, write file, offset); None where the file is missing or says something else."""
    try:
        with open(path, "rb") as file:
            form = FORM.fullmatch(file.read(200))
    except OSError:
        return None
    return tuple(map(int, form.groups())) if form else None


def data_files(folder: str, name: str) -> list[int]:
    """The numbers of a queue's data files, rising."""
    prefix = f"{name}.diskqueue."
    found = []
    for entry in os.listdir(folder):
        if entry.startswith(prefix) and entry.endswith(".dat"):
            middle = entry[len(prefix):-4]
            if len(middle) >= 6 and middle.isdecimal():
                found.append(int(middle))
    return sorted(found)


def retire(path: str, done: list[tuple[str, str]]) -> None:
    """Renames a file to a name that is no queue's and adds it to what is to be removed."""
    retired = f"{path}.retired-{os.getpid()}-{next(numbers)}"
    try:
        os.rename(path, retired)
    except OSError:
        return
    done.append((retired, ""))


def remove_retired(folder: str) -> None:
    """Removes what an earlier run has retired and not removed."""
    for entry in os.listdir(folder):
        if RETIRED.search(entry):
            os.unlink(os.path.join(folder, entry))
