"""Paths as people give them: `~/x`, `file:/x`, and URIs of systems that are not files of this machine."""

from __future__ import annotations

import os.path
import re

# s3a://bucket/x, dbfs:/x, file:x. Without the slash, "a:b" is an ordinary file name.
URI = re.compile(r"[a-z][a-z0-9+.-]*:(?=/)|file:", re.IGNORECASE)
FILE_URI = re.compile(r"file:(?://(localhost)?(?=/))?(?=/(?!/))", re.IGNORECASE)


def is_foreign(text: str) -> bool:
    """Whether a path is a URI of anything but files of this machine."""
    return scheme(text) not in ("", "file")


def scheme(text: str) -> str:
    """The scheme of a URI in lower case; empty for a plain path."""
    found = URI.match(text)
    return found[0].rstrip(":").lower() if found else ""


def local(text: str) -> str:
    """A path of this machine: `~` expanded, `file:` removed. Nothing is decoded, as in Hadoop's paths. Raises
    ValueError."""
    if not scheme(text):
        return os.path.expanduser(text)
    if is_foreign(text):
        raise ValueError(f"{text} is not a path of this machine; give the one where that file system is mounted")
    head = FILE_URI.match(text)
    if head is None:
        raise ValueError(f"{text} is not file:///PATH, an absolute path of this machine")
    return text[head.end():]


def absolute(text: str) -> str:
    """The same for a path that processes with other working folders use, so not a relative one. Raises ValueError."""
    path = local(text)
    if not os.path.isabs(path):
        raise ValueError(f"{text} is a relative path; processes have different working folders, give an absolute path")
    return path
