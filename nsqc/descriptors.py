"""File descriptors of this process: how many it may have open, and how they are shared between clients and files."""

from __future__ import annotations

import os
import resource
import sys

# What is kept for fsync workers, metadata, nsqlookupd, auth servers: an eighth of a small limit, never more than this.
_MOST_KEPT = 64
_FOLDER = "/proc/self/fd"
_QUEUE_FILE = ".dat"
_USUAL = 32  # open in a daemon without clients and queues; for systems without /proc


def raise_limit() -> int:
    """Raises the soft limit of open files to the hard one, as Go's runtime does, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass  # a system may have a lower bound of its own; the soft limit will do
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def for_queues(limit: int, wanted: int) -> int:
    """How many of limit descriptors disk queues may share: as many as the option says, but no more than a quarter."""
    return min(wanted, max(4, limit // 4))


def for_clients(limit: int, queues: int) -> int:
    """How many of limit descriptors clients may have, at least one, besides queues and what is open already."""
    return max(1, limit - queues - min(_MOST_KEPT, limit // 8) - _others())


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
