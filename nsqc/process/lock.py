"""One process per folder: flock(2), as nsqd locks its data path."""

from __future__ import annotations

import fcntl
import os


class LockError(Exception):
    """The folder cannot be locked; the text is nsqd's."""


def lock(folder: str) -> int:
    """Locks the folder until the returned descriptor is closed or the process ends. Raises LockError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise LockError(f"failed to lock data-path: open {folder}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise LockError(f"failed to lock data-path: cannot flock directory {folder} - {error.strerror} "
                        "(possibly in use by another instance of nsqd)") from None
    return descriptor
