"""Small files that must survive a crash intact, and nsqd.dat's format."""

from __future__ import annotations

import asyncio
import codecs
import errno
import os
import stat
from collections.abc import Generator
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from nsqc import NSQD_VERSION
from nsqc.store.work import Slicer
from nsqc.wire.outside import Decoder

# ====================================================================== nsqd.dat
# The topics and channels of a data path, and which of them are paused.

METADATA = "nsqd.dat"


class MetadataError(Exception):
    """nsqd.dat is unreadable or malformed, and cannot be rebuilt."""


class SavedChannel(Struct, gc=False):
    """A channel in nsqd.dat."""

    name: str
    paused: bool = False


class SavedTopic(Struct, gc=False):
    """A topic in nsqd.dat, which writes null for no channels."""

    name: str
    paused: bool = False
    channels: list[SavedChannel] | None = None


class Saved(Struct, gc=False):
    """The whole of nsqd.dat, which writes null for no topics."""

    topics: list[SavedTopic] | None = None
    version: str = NSQD_VERSION


decode_saved = Decoder(Saved).decode


# ====================================================================== files

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


# ====================================================================== unusable files
# Keeps unusable files under another name, PATH.bad, for investigation.

def set_aside(path: str) -> str | None:
    """Renames a file, or anything else at that path, to PATH.bad, durably; returns the new path, or None if it
    cannot be renamed."""
    name = bad_name(path)
    try:
        os.rename(path, name)
    except OSError:
        return None
    with suppress(OSError):
        sync_folder(os.path.dirname(path) or ".")
    return name


def keep_bad(path: str) -> bool:
    """Links a damaged file as PATH.bad, a second name that survives removal of the first. The caller has to
    sync the folder before removing it.

    False if the file system has no hard links: then rename the file once all of it has been read.
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
    """The existing second name, or the first free one of PATH.bad, PATH.bad.1, ...: earlier damage is kept."""
    name, number = f"{path}.bad", 0
    while os.path.lexists(name) and not same_file(path, name):
        number += 1
        name = f"{path}.bad.{number}"
    return name


def same_file(path: str, other: str) -> bool:
    """Whether two paths refer to the same file."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


# ====================================================================== machine
# Identifies this machine and its folders to other programs on it.

def boot_id() -> str:
    """The machine's boot id, which changes with every boot; empty if it cannot be read."""
    try:
        return read_file("/proc/sys/kernel/random/boot_id").decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def folder_key(folder: str | int) -> str:
    """Identifies a folder, given by path or descriptor: the machine's boot id, the device and the inode; empty if
    unknown. A copy has a different key, even under the same path on a copy of the machine. Raises OSError.
    """
    boot, status = boot_id(), os.stat(folder)
    return f"{boot}.{status.st_dev:x}.{status.st_ino:x}" if boot else ""


def boot_of(key: str) -> str:
    """The boot id in such a key."""
    return key.partition(".")[0]


# ====================================================================== slicing
# Slices of long work in Python: see nsqc.store.work.

Result = TypeVar("Result")


async def completed(slicer: Slicer, what: str, work: Generator[None, None, Result]) -> Result:
    """Runs a generator to its end; it yields whenever its slice is over. what: its name in /debug/slow."""
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def step() -> bool:
        if done.done():
            return False        # the waiter is gone
        try:
            next(work)
        except StopIteration as end:
            done.set_result(end.value)
            return False
        except Exception as error:
            done.set_exception(error)
            return False
        return True

    step.__qualname__ = what
    slicer.call(step)
    return await done


async def rest(slicer: Slicer) -> None:
    """Yields to the loop if the slice is over, and starts the next one."""
    if slicer.is_over():
        await asyncio.sleep(0)
        slicer.start()
