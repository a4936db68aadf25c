"""By what programs of one machine recognize it, and its folders."""

from __future__ import annotations

import os

from nsqc.store.files import read_file


def boot_id() -> str:
    """Of the machine, another one after each start of it; empty if it cannot be read."""
    try:
        return read_file("/proc/sys/kernel/random/boot_id").decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def folder_key(folder: str | int) -> str:
    """Which folder this is, a path or a descriptor: the boot id of its machine, its device, and its inode; empty if
    that cannot be said. A copy has another one, also one with the same path on a copy of the machine. Raises OSError.
    """
    boot, status = boot_id(), os.stat(folder)
    return f"{boot}.{status.st_dev:x}.{status.st_ino:x}" if boot else ""


def boot_of(key: str) -> str:
    """The boot id in such a key."""
    return key.partition(".")[0]
