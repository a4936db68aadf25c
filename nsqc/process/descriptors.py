"""File descriptors of this process: how many it may have open, and how they are shared between clients and files."""

from __future__ import annotations

import contextlib
import os
import resource
import sys

# What is kept for fsync workers, metadata, nsqlookupd, auth servers: an eighth of a small limit, never more than this.
_MOST_KEPT = 64
_QUEUES = 8  # threads that read, write and sync queue files, each one file at a time
_FOR_ONE = 3  # a client, a file to read and one to write
_FOLDER = "/proc/self/fd"
_QUEUE_FILE = ".dat"
_USUAL = 32  # open in a daemon without clients and queues; for systems without /proc


def raise_limit() -> int:
    """Raises the soft limit of open files to the hard one, as Go's runtime does, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # A system may have a lower bound of its own: then the soft limit will do.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    """The soft limit of now; an operator may change it for a running process."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def for_clients(most: int, connected: int) -> int:
    """How many of most descriptors clients may have besides queues and what is open; connected: clients of now.

    One at least, if the limit is so low that the shares do not fit, but any are free at all; else 0 or less.
    """
    left = most - _others() + connected
    return max(left - min(_QUEUES, most // 4) - min(_MOST_KEPT, most // 8), min(1, left - _FOR_ONE))


def _others() -> int:
    """Descriptors that are open now, without data files, which count with their queues."""
    try:
        names = os.listdir(_FOLDER)
    except OSError:
        return _USUAL
    count = 0
    for name in names:
        try:
            count += not os.readlink(f"{_FOLDER}/{name}").endswith(_QUEUE_FILE)
        except OSError:
            continue  # it was the listing's own
    return count
