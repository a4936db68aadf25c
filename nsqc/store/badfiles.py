"""Keeps unusable files under another name, PATH.bad, for investigation."""

from __future__ import annotations

import os
from contextlib import suppress

from nsqc.store.files import sync_folder


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
