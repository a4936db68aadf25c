"""Small files that must survive a crash intact."""

from __future__ import annotations

import codecs
import errno
import os
import stat
from contextlib import suppress


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Reads a file. Raises OSError, also for anything but a regular file; never blocks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return file.read()


def read_edited_file(path: str | os.PathLike[str]) -> bytes:
    """The same for hand-edited text: skips a byte order mark, which some editors add."""
    return read_file(path).removeprefix(codecs.BOM_UTF8)


def replace_file(path: str | os.PathLike[str], data: bytes, durable: bool = True, mode: int = 0o600) -> None:
    """Replaces a file atomically; durable: the data is on disk on return. Raises OSError."""
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest):]
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        sync_folder(os.path.dirname(path) or ".")


def overwrite_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Overwrites an existing file that has at least this size, durably: on a full disk. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, data, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Makes renames in a folder durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
