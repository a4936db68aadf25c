"""Reads records from the files of a node on the same machine, without querying it. Knows no Spark and no network.

Anything inconsistent is left to the node, which knows and reports the cause.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

from nsqc.spark.log.api import Piece, State
from nsqc.store.log.block import SegmentBlocks, manifest_id
from nsqc.store.log.names import FRAMES_AT
from nsqc.store.machine import folder_key

MANIFEST_BYTES = 4096       # an upper bound of its size


class LocalLog:
    """A log in the folder reported by its node. Keeps no file open: a paused reader holds no removed files."""

    def __init__(self, state: State, max_body: int) -> None:
        """state: as reported by the node. max_body: size of the largest message read here."""
        self._folder = state.folder
        self._key = state.folder_key
        self._id = state.id
        # Only records counted by the node: later bytes may be refused or abandoned records.
        self._segments = state.segments
        self._max_body = max_body
        self._blocks = SegmentBlocks()

    def piece(self, offset: int, end: int, max_bytes: int) -> Piece | None:
        """Intact records from an offset to before another; of one segment, and at least one. None: query the node
        instead."""
        at = bisect_right(self._segments, offset, key=lambda segment: segment.first) - 1
        if at < 0 or offset >= self._segments[at].end or not os.path.isabs(self._folder):
            return None
        segment = self._segments[at]
        try:
            with (_opened(self._folder, os.O_DIRECTORY) as folder, _opened("manifest", 0, folder) as manifest,
                  _opened(f"{segment.first:020}.log", 0, folder) as file):
                if not self._key or folder_key(folder) != self._key or not _are_files(manifest, file):
                    return None
                # A topic that is created again has a log with another id.
                if f"{manifest_id(os.pread(manifest, MANIFEST_BYTES, 0)) or 0:016x}" != self._id:
                    return None
                block = self._blocks.read(file, (segment.first, segment.end, FRAMES_AT + segment.bytes, segment.salt),
                                          offset, end, max_bytes)
        except (OSError, ValueError):       # ValueError: a path with a NUL
            return None
        return None if block is None or block.largest > self._max_body else Piece(offset, block.next, 0, block)


@contextmanager
def _opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _are_files(*descriptors: int) -> bool:
    return all(stat.S_ISREG(os.fstat(descriptor).st_mode) for descriptor in descriptors)
