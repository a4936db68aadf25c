"""Names of the files of a log topic: see docs/ondisk.md."""

from __future__ import annotations

import os
import re

FOLDER_ENDING = ".log"
SEGMENT = re.compile(r"(\d{20})\.(dat|idx|due)")


def folder_of(data_path: str, topic: str) -> str:
    """The folder of a log topic."""
    return os.path.join(data_path, topic + FOLDER_ENDING)


def topic_of(folder: str) -> str:
    """The topic that has this folder, by its name; empty if it is not that of a log."""
    name = os.path.basename(os.path.abspath(folder))
    return name[:-len(FOLDER_ENDING)] if name.endswith(FOLDER_ENDING) else ""


def segment_path(folder: str, first: int, kind: str) -> str:
    """kind: dat, idx or due."""
    return os.path.join(folder, f"{first:020}.{kind}")


def split_name(name: str) -> tuple[int, str] | None:
    """(first offset, kind) of a file of a segment; None: it is another file."""
    found = SEGMENT.fullmatch(name)
    return (int(found[1]), found[2]) if found and int(found[1]) < 2**63 else None
