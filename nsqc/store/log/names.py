"""Names of the files of a log topic: see docs/ondisk.md."""

from __future__ import annotations

import os
import re

FOLDER = re.compile(r"(.+)\.log(?:~(\d+))?")  # while one is being removed, a second one of its name has a number
SEGMENT = re.compile(r"(\d{20})\.(dat|idx|due)")


def topic_of(folder: str) -> str:
    """The topic whose folder has this name; empty: it is not that of a log."""
    found = FOLDER.fullmatch(os.path.basename(os.path.abspath(folder)))
    return found[1] if found else ""


def folders_in(data_path: str) -> dict[str, str]:
    """The topics that have a log, and their folders. Raises OSError."""
    found: dict[str, tuple[int, str]] = {}
    with os.scandir(data_path) as entries:
        for entry in entries:
            name = FOLDER.fullmatch(entry.name)
            if name and entry.is_dir(follow_symlinks=False):
                found[name[1]] = max(found.get(name[1], (-1, "")), (int(name[2] or 0), entry.path))
    return {topic: os.path.abspath(folder) for topic, (_, folder) in sorted(found.items())}


def segment_path(folder: str, first: int, kind: str) -> str:
    """kind: dat, idx or due."""
    return os.path.join(folder, f"{first:020}.{kind}")


def split_name(name: str) -> tuple[int, str] | None:
    """(first offset, kind) of a file of a segment; None: it is another file."""
    found = SEGMENT.fullmatch(name)
    return (int(found[1]), found[2]) if found and int(found[1]) < 2**63 else None
