"""What has a name of a log's file, and is a folder, a pipe, a socket, a device or a link to one."""

from __future__ import annotations

import os
import re

from nsqc.store.badfiles import set_aside
from nsqc.store.log.names import split_name

CURSORS = re.compile(r"cursors\.[0-9]+\.(journal|snapshot|snapshot\.tmp)")


def not_files(folder: str) -> list[str]:
    """Their names. Raises OSError."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries
                      if (split_name(entry.name) or CURSORS.fullmatch(entry.name)) and not leads_to_file(entry))


def leads_to_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file, or a link to one."""
    try:
        return entry.is_file()
    except OSError:     # a link to itself
        return False


def put_away(folder: str, name: str) -> str:
    """Renames it, so that the name is free; returns its new path. Raises OSError."""
    path = os.path.join(folder, name)
    new = set_aside(path)
    if new is None:
        raise OSError(None, "cannot be renamed", path)
    return new
