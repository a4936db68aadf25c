"""The positions file of a disk queue, and the names of its files.

    DEPTH
    READ_FILE,READ_OFFSET
    WRITE_FILE,WRITE_OFFSET
"""

from __future__ import annotations

import itertools
import os
import re
from contextlib import suppress

FORM = re.compile(rb"(-?\d{1,18})\n(\d{1,18}),(\d{1,18})\n(\d{1,18}),(\d{1,18})\n?")
# Files that an earlier run was about to remove, and positions that it had not put in place.
LEFTOVER = re.compile(r"\.diskqueue\.(?:(?:meta|\d{6,})\.dat\.retired-\d+-\d+|meta\.dat\.[\d-]+\.tmp)$")
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


def data_files(folder: str, name: str) -> dict[int, int]:
    """The data files of a queue, rising by number: their sizes. What has such a name and is no file is left out."""
    prefix = f"{name}.diskqueue."
    found = {}
    for entry in os.listdir(folder):
        if entry.startswith(prefix) and entry.endswith(".dat"):
            middle = entry[len(prefix):-4]
            if len(middle) >= 6 and middle.isdecimal() and middle.isascii() and f"{int(middle):06d}" == middle:
                path = os.path.join(folder, entry)
                if os.path.isfile(path):
                    found[int(middle)] = os.path.getsize(path)
    return dict(sorted(found.items()))


def retire(path: str) -> str | None:
    """Renames a file that is to be removed to a name that is no queue's, and returns that; None: there is no such file.

    Only such names are unlinked on worker threads, which may lag behind: by then, a new queue may use the old name.
    """
    retired = f"{path}.retired-{os.getpid()}-{next(numbers)}"
    try:
        os.rename(path, retired)
    except OSError:
        return None
    return retired


def is_retired(path: str) -> bool:
    """Whether retire() made that name."""
    return LEFTOVER.search(path) is not None


def keep_bad(path: str) -> bool:
    """Gives a damaged file a second name that stays, PATH.bad, beside the one it is still read under.

    False where the file system cannot do that: it has to be renamed once it is read through.
    """
    name = bad_name(path)
    if same_file(path, name):
        return True
    try:
        os.link(path, name)
    except OSError:
        return False
    return True


def bad_name(path: str) -> str:
    """The first of PATH.bad, PATH.bad.1, ... that is free; an earlier damage stays kept."""
    name, number = f"{path}.bad", 0
    while os.path.lexists(name) and not same_file(path, name):
        number += 1
        name = f"{path}.bad.{number}"
    return name


def same_file(path: str, other: str) -> bool:
    """Whether two names stand for one file."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def remove_leftovers(folder: str) -> None:
    """Removes what an earlier run was about to remove."""
    for entry in os.listdir(folder):
        if LEFTOVER.search(entry):
            with suppress(OSError):
                os.unlink(os.path.join(folder, entry))
