"""Paths from users: `~/x`, `file:/x`, and URIs of other file systems."""

from __future__ import annotations

import os.path
import re

# s3a://bucket/x, dbfs:/x, file:x. Without the slash, "a:b" is an ordinary file name.
URI = re.compile(r"[a-z][a-z0-9+.-]*:(?=/)|file:", re.IGNORECASE)
FILE_URI = re.compile(r"file:(?://(localhost)?(?=/))?(?=/(?!/))", re.IGNORECASE)


def is_foreign(text: str) -> bool:
    """Whether a path is a URI of another file system."""
    return scheme(text) not in ("", "file")


def scheme(text: str) -> str:
    """The scheme of a URI in lower case; empty for a plain path."""
    found = URI.match(text)
    return found[0].rstrip(":").lower() if found else ""


def local(text: str) -> str:
    """The local path: `~` expanded, `file:` removed. Percent signs stay, as in Hadoop's paths. Raises ValueError."""
    if not scheme(text):
        return os.path.expanduser(text)
    if is_foreign(text):
        raise ValueError(f"{text} is not a local path; give the path where that file system is mounted")
    head = FILE_URI.match(text)
    if head is None:
        raise ValueError(f"{text} is not a local path; write file:///PATH")
    return text[head.end():]


def absolute(text: str) -> str:
    """Like local(), for a path shared with other processes: refuses relative paths. Raises ValueError."""
    path = local(text)
    if not os.path.isabs(path):
        raise ValueError(f"{text} is relative; give an absolute path, because processes have different working folders")
    return path


def folder_fault(path: str) -> str:
    """Why a path is not one of a folder: for the user; empty: it is."""
    if os.path.isdir(path):
        return ""
    return f"{path} {'is not a folder' if os.path.lexists(path) else 'does not exist'}"
