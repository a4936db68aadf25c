"""Records from the files of a node on the same machine, in place of asking it. Knows no Spark and no network.

Whatever is not as expected is left to the node: it knows why, and says so.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from nsqc.spark.log.api import Piece
from nsqc.store.log import spans
from nsqc.store.log.files import Bounds
from nsqc.store.log.format import INDEX_ENTRY, INDEX_HEAD
from nsqc.store.log.names import split_name


class Open(NamedTuple):
    """A segment: descriptors of its file and its index, and what they hold."""

    dat: int
    idx: int
    bounds: Bounds


class LocalLog:
    """The log with an id, if it is in a folder of this machine. Not for several threads."""

    def __init__(self, folder: str, log_id: str, max_record: int) -> None:
        """max_record: bytes of a record that is read here."""
        self._folder = -1
        self._id = f"id.{log_id}"
        self._max_record = max_record
        self._segment: Open | None = None
        # A file on this machine of which somebody else says where it is: only a log that has this very id is read.
        if os.path.isabs(folder) and log_id.isalnum():
            try:
                self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                os.stat(self._id, dir_fd=self._folder)
            except (OSError, ValueError):
                self.close()

    def close(self) -> None:
        """Closes the files; piece() has nothing from then on."""
        self._leave()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    @property
    def there(self) -> bool:
        """Whether there is such a log."""
        return self._folder >= 0

    def piece(self, offset: int, end: int, max_bytes: int, into: bytearray) -> Piece | None:
        """Intact records from an offset to before another, which the node has said are written; of one segment, and
        one at least. None: the node has to be asked. The records are in `into`, or in memory of their own."""
        try:
            segment = self._with(offset)
            if segment is None:
                return None
            first, behind, length = segment.bounds
            found = spans.sound(segment.dat, segment.idx, (first, min(behind, end), length), offset, end - offset,
                                max_bytes, False)
            length = found.end - found.start
            if found.damaged or found.first != offset or found.next == offset:
                return None
            if length > max(max_bytes, self._max_record):
                return None
            if length > len(into):
                into = bytearray(length)
            if os.preadv(segment.dat, [memoryview(into)[:length]], found.start) != length:
                return None
        except OSError:
            return None
        return Piece(offset, found.next, 0, into, length)

    def _with(self, offset: int) -> Open | None:
        """The segment that has an offset. Raises OSError."""
        segment = self._segment
        if segment is not None and segment.bounds[0] <= offset < segment.bounds[1]:
            return segment
        self._leave()
        if self._folder < 0:
            return None
        with os.scandir(self._folder) as entries:
            names = [name for entry in entries if (name := split_name(entry.name)) is not None]
        first = max((first for first, kind in names if kind == "dat" and first <= offset), default=None)
        if first is None:
            return None
        self._segment = self._opened(first)
        # While a deletion removes file by file, the id goes, too.
        os.stat(self._id, dir_fd=self._folder)
        return self._segment if self._segment.bounds[1] > offset else None

    def _opened(self, first: int) -> Open:
        data = self._open(f"{first:020}.dat")
        try:
            index = self._open(f"{first:020}.idx")
        except OSError:
            os.close(data)
            raise
        # In this order: entries that are there say of records that are there.
        entries = max(os.fstat(index).st_size - INDEX_HEAD, 0) // INDEX_ENTRY
        return Open(data, index, (first, first + entries, os.fstat(data).st_size))

    def _open(self, name: str) -> int:
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise FileNotFoundError(name)
        return file

    def _leave(self) -> None:
        if self._segment is not None:
            os.close(self._segment.dat)
            os.close(self._segment.idx)
            self._segment = None
