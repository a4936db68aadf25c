"""What this process uses. Asking takes system calls, one for each open descriptor on older kernels: for a thread."""

from __future__ import annotations

import os
import resource
from typing import NamedTuple

from nsqc.process import descriptors

_FOLDER = "/proc/self/fd"


class Usage(NamedTuple):
    """As of one moment; -1: the system does not say."""

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
        # From Linux 6.2 on the size of the folder is how many there are.
        return os.stat(_FOLDER).st_size or len(os.listdir(_FOLDER)) - 1
    except OSError:
        return -1
