"""Resource usage of this process. Takes system calls, one per open descriptor on older kernels: call it on a thread."""

from __future__ import annotations

import os
import resource
from typing import NamedTuple

from nsqc.process import descriptors

_FOLDER = "/proc/self/fd"


class Usage(NamedTuple):
    """A snapshot; -1: unknown to the system."""

    cpu_s: float        # user and system, since the start
    resident_bytes: int
    open_files: int
    most_files: int


def read() -> Usage:
    """Asks the system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(used.ru_utime + used.ru_stime, _resident_bytes(), _open_files(), descriptors.limit())


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return -1


def _open_files() -> int:
    try:
        # Since Linux 6.2 the folder's size is their number.
        return os.stat(_FOLDER).st_size or len(os.listdir(_FOLDER)) - 1
    except OSError:
        return -1
