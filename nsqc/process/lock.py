"""One process per folder: flock(2), as nsqd locks its data path."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class LockError(Exception):
    """The folder cannot be locked; the text is nsqd's."""


def lock(folder: str) -> int:
    """Locks the folder until the returned descriptor is closed or the process ends. Raises LockError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        hint = advice(folder, error.errno)
        raise LockError(f"failed to lock data-path: open {folder}: {error.strerror}{hint}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise LockError(f"failed to lock data-path: cannot flock directory {folder} - {error.strerror} "
                        "(possibly in use by another instance of nsqd)") from None
    return descriptor


@contextmanager
def locked(folders: Iterable[str]) -> Iterator[None]:
    """Locks folders meanwhile. Raises LockError."""
    descriptors: list[int] = []
    try:
        for folder in sorted(folders):
            descriptors.append(lock(folder))
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def check_writable(folder: str) -> None:
    """Raises LockError if this process cannot create files in the folder."""
    if os.access(folder, os.W_OK | os.X_OK):
        return
    code = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
    raise LockError(f"cannot write to data-path: {folder}: {os.strerror(code)}{advice(folder, code)}")


def advice(folder: str, code: int | None) -> str:
    """The remedy for a folder that cannot be used, after the reason."""
    if code == errno.ENOENT:
        return "; create it, or set --data-path"
    if code == errno.EROFS:
        return "; mount it writable, or set --data-path"
    if code != errno.EACCES:
        return ""
    try:
        status = os.stat(folder)
    except OSError:
        return ""       # of a folder above
    mode = stat.S_IMODE(status.st_mode)
    return (f"; it belongs to user {status.st_uid} and group {status.st_gid} with mode {mode:o}, and this process runs "
            f"as user {os.geteuid()} and group {os.getegid()}: chown it, or set --data-path")
