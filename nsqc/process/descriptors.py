"""File descriptors: the limit of this process, and how clients and files share it."""

from __future__ import annotations

import contextlib
import os
import resource
import sys

# Reserved for fsync workers, metadata, nsqlookupd and auth servers: at most this, or an eighth of a small limit.
_MOST_RESERVED = 64
_QUEUES = 8  # threads that read, write and sync queue files, one file each
_FOR_ONE_CLIENT = 3  # the client, a file to read and a file to write
_FOLDER = "/proc/self/fd"
_QUEUE_FILE = ".dat"
_USUAL = 32  # open in an idle daemon; for systems without /proc


def raise_limit() -> int:
    """Raises the soft limit of open files to the hard limit, as Go's runtime does, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # The system may have a lower limit: then keep the soft limit.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    """The current soft limit; an operator may change it while the process runs."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def for_clients(most: int, connected: int) -> int:
    """Descriptors of `most` available to clients after queues and files; connected: current clients.

    At least one if any are free, even if the limit is too low for all shares; otherwise 0 or less.
    """
    left = most - _others() + connected
    return max(left - min(_QUEUES, most // 4) - min(_MOST_RESERVED, most // 8), min(1, left - _FOR_ONE_CLIENT))


def _others() -> int:
    """Open descriptors, except data files, which are counted with the queues."""
    try:
        names = os.listdir(_FOLDER)
    except OSError:
        return _USUAL
    count = 0
    for name in names:
        try:
            count += not os.readlink(f"{_FOLDER}/{name}").endswith(_QUEUE_FILE)
        except OSError:
            continue  # the descriptor of the listing itself
    return count
