"""Identifies this machine and its folders to other programs on it."""

from __future__ import annotations

import os

from nsqc.store.files import read_file


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
