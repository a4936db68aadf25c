"""Records from the files of a node on the same machine, in place of asking it. Knows no Spark and no network.

Whatever is not as the node says is left to the node: it knows why, and tells it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from nsqc.spark.log.api import Piece, State
from nsqc.store.log import spans
from nsqc.store.log.files import segment_of
from nsqc.store.log.names import segment_path
from nsqc.store.machine import folder_key


class LocalLog:
    """A log in the folder that its node names. Holds no file: a reader that pauses keeps nothing of what is removed."""

    def __init__(self, state: State, max_record: int) -> None:
        """state: as the node has told it. max_record: bytes of a record that is read here."""
        self._folder = state.folder
        self._key = state.folder_key
        self._id = f"id.{state.id}"
        # Only what the node counts: behind it, files may have what it has refused or given up.
        self._segments = state.segments
        self._max_record = max_record

    def piece(self, offset: int, end: int, max_bytes: int, into: bytearray) -> Piece | None:
        """Intact records from an offset to before another; of one segment, and one at least. None: the node has to be
        asked. The records are in `into`, or in memory of their own."""
        segment = segment_of(self._segments, offset)
        if segment is None or offset < segment[0] or not os.path.isabs(self._folder):
            return None
        first = segment[0]
        try:
            with (_opened(self._folder, os.O_DIRECTORY) as folder, _opened(segment_path("", first, "dat"), 0, folder)
                  as data, _opened(segment_path("", first, "idx"), 0, folder) as index):
                # A topic that is deleted loses its id; one that is made again has another one.
                os.stat(self._id, dir_fd=folder)
                if not self._key or folder_key(folder) != self._key or not _are_files(data, index):
                    return None
                found = spans.sound(data, index, segment, offset, end - offset, max_bytes, False)
                if found.damaged or found.first != offset or found.next == offset:
                    return None
                length = found.end - found.start
                if length > max(max_bytes, self._max_record):
                    return None
                if length > len(into):
                    into = bytearray(length)
                if os.preadv(data, [memoryview(into)[:length]], found.start) != length:
                    return None
        except (OSError, ValueError):       # ValueError: a path with a NUL
            return None
        return Piece(offset, found.next, 0, into, length)


@contextmanager
def _opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _are_files(*descriptors: int) -> bool:
    return all(stat.S_ISREG(os.fstat(descriptor).st_mode) for descriptor in descriptors)
