"""The positions file of a disk queue, and the names of its files.

    DEPTH
    READ_FILE,READ_OFFSET
    WRITE_FILE,WRITE_OFFSET
"""

from __future__ import annotations

import os
import re
import stat

FORM = re.compile(rb"(-?\d{1,17})\n(\d{1,17}),(\d{1,17})\n(\d{1,17}),(\d{1,17})\n?")
# Files that an earlier run was about to remove, and positions that it had not put in place.
LEFTOVER = re.compile(r"\.diskqueue\.(?:(?:meta|\d{6,})\.dat\.retired-\d+-\d+|meta\.dat\.[\d-]+\.tmp)$")
META = -1  # among the numbers of a queue's files: the positions file
ODD = -1  # among their sizes: it is no file (a folder, a device, a link that leads nowhere)


def encode(depth: int, read_number: int, read_at: int, write_number: int, write_at: int) -> bytes:
    """The text of the file."""
    return b"%d\n%d,%d\n%d,%d\n" % (depth, read_number, read_at, write_number, write_at)


def read(path: str) -> tuple[int, int, int, int, int] | None:
    """(depth, read file, offset, write file, offset); None where the file is missing or says something else."""
    try:
        # A pipe that somebody has put there must not hold up the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            form = FORM.fullmatch(os.read(descriptor, 200))
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return tuple(map(int, form.groups())) if form else None


def path_of(folder: str, queue: str, number: int) -> str:
    """The path of a data file, or with META of the positions."""
    return f"{folder}/{queue}.diskqueue.{'meta' if number == META else f'{number:06d}'}.dat"


def split_name(entry: str) -> tuple[str, int] | None:
    """(queue, number, or META) of a file name; None where no queue has such a file."""
    if not entry.endswith(".dat"):
        return None
    queue, _, middle = entry[:-4].rpartition(".diskqueue.")
    if not queue:
        return None
    if middle == "meta":
        return queue, META
    is_number = middle.isascii() and middle.isdecimal() and 6 <= len(middle) < 18
    if not is_number or (len(middle) > 6 and middle[0] == "0"):
        return None
    return queue, int(middle)


def size_of(entry: os.DirEntry[str]) -> int:
    """Of the file that stands there, or that a link there leads to; ODD where there is none."""
    try:
        found = entry.stat()
    except OSError:
        return ODD
    return found.st_size if stat.S_ISREG(found.st_mode) else ODD


def queue_files(folder: str, name: str) -> dict[int, int]:
    """What has the name of a file of that queue: number, or META, to size, or ODD."""
    prefix = f"{name}.diskqueue."
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                parts = split_name(entry.name)
                if parts is not None and parts[0] == name:
                    found[parts[1]] = size_of(entry)
    return found


def listing(folder: str) -> dict[str, dict[int, int]]:
    """All queues that have data files: for each their numbers, rising, and sizes. What is no file is left out."""
    found: dict[str, dict[int, int]] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            parts = split_name(entry.name)
            if parts is not None and parts[1] != META and (size := size_of(entry)) != ODD:
                found.setdefault(parts[0], {})[parts[1]] = size
    return {name: dict(sorted(files.items())) for name, files in found.items()}


def set_aside(path: str) -> str | None:
    """Renames what stands in the way to PATH.bad, and returns that; None where it cannot be renamed."""
    name = bad_name(path)
    try:
        os.rename(path, name)
    except OSError:
        return None
    return name


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
