"""Where a disk queue begins: its positions file compared with the data files that are there.

After a graceful stop the two agree and nothing is read. After a crash the data goes further than the positions, and
only what lies behind them is read. Otherwise every record from the read position on is counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from nsqc.store import diskmeta
from nsqc.store.segment import count

HEAD_BYTES = 30


class Start(NamedTuple):
    """What a queue begins with."""

    depth: int
    read_number: int
    read_at: int
    write_number: int
    write_at: int
    consumed: list[str]  # files that were read through and not removed
    changed: bool  # the positions file does not say this yet


class Recovery:
    """One queue that is being opened. files: data file number to size; meta: what the positions file says, or None."""

    def __init__(self, name: str, files: dict[int, int], meta: tuple[int, int, int, int, int] | None, max_bytes: int,
                 path_of: Callable[[int], str], log: Any):
        self.name = name
        self.files = files
        self.meta = meta
        self.max_bytes = max_bytes  # of a record
        self.path_of = path_of
        self.log = log

    def start(self) -> Start:
        """Positions and depth. Raises OSError where a file cannot be read."""
        if self.meta is None:
            if not self.files:
                return Start(0, 0, 0, 0, 0, [], False)
            self.log.error("DISKQUEUE(%s): no usable positions, they are rebuilt from the files", self.name)
            first = min(self.files)
            return self._recount((first, 0), [])
        _, read_number, read_at, write_number, write_at = self.meta
        consumed = [self.path_of(number) for number in self.files if number < read_number]
        self.files = {number: size for number, size in self.files.items() if number >= read_number}
        if not self._agrees():
            return self._recount((read_number, read_at), consumed)
        if self.files.get(write_number, 0) > write_at or any(number > write_number for number in self.files):
            return self._extend(consumed)
        return Start(*self.meta, consumed, False)

    def _agrees(self) -> bool:
        """Whether all that the positions speak of is there; more may be."""
        depth, read_number, read_at, write_number, write_at = self.meta
        waits = (read_number, read_at) < (write_number, write_at)
        if (read_number, read_at) > (write_number, write_at) or (depth > 0) != waits or depth < 0:
            return False
        if write_at > self.files.get(write_number, 0):
            return False
        if read_number < write_number:
            return (all(number in self.files for number in range(read_number, write_number))
                    and read_at < self.files[read_number])
        return True

    def _extend(self, consumed: list[str]) -> Start:
        """Counts what was written after the positions were."""
        depth, read_number, read_at, write_number, write_at = self.meta
        found = 0
        for number in sorted(number for number in self.files if number >= write_number):
            records, write_at, sound = self._count(number, write_at if number == write_number else 0)
            found += records
            last, last_sound = number, sound
        self.log.warn("DISKQUEUE(%s): was not closed cleanly, %d messages found behind its write position",
                      self.name, found)
        write_number, write_at = self._tail(last, write_at, last_sound)
        return self._at(depth + found, (read_number, read_at), (write_number, write_at), consumed)

    def _recount(self, read: tuple[int, int], consumed: list[str]) -> Start:
        """Counts all that waits."""
        read_number, read_at = read
        known = max(self.meta[0], 0) if self.meta else 0
        if not self.files:
            if self.meta != (0, read_number, read_at, *read):
                self.log.error("DISKQUEUE(%s): its data files are missing, %d messages are lost", self.name, known)
            number = max(read_number, self.meta[3] if self.meta else 0) + 1
            return Start(0, number, 0, number, 0, consumed, True)
        first, last = min(self.files), max(self.files)
        missing = [number for number in range(min(read_number, first), last) if number not in self.files]
        if missing:
            self.log.error("DISKQUEUE(%s): %d files are missing, the first of them %s", self.name, len(missing),
                           self.path_of(missing[0]))
        if read_number not in self.files:
            read_number, read_at = first, 0
        read_at = min(read_at, self.files[read_number])
        depth = 0
        for number in sorted(self.files):
            records, end, sound = self._count(number, read_at if number == read_number else 0)
            depth += records
        self.log.warn("DISKQUEUE(%s): %d messages found in its files, where %d were expected", self.name, depth, known)
        return self._at(depth, (read_number, read_at), self._tail(last, end, sound), consumed)

    def _at(self, depth: int, read: tuple[int, int], write: tuple[int, int], consumed: list[str]) -> Start:
        """A read position at the end of a file that is not written any more belongs to the next one: nsqd, too, takes
        it for damage otherwise."""
        number, at = read
        while number < write[0] and at >= self.files.get(number, 0):
            if number in self.files:
                consumed = [*consumed, self.path_of(number)]
            number, at = number + 1, 0
        return Start(depth, number, at, *write, consumed, True)

    def _count(self, number: int, at: int) -> tuple[int, int, bool]:
        """(records, end of the last, whether all bytes up to there belong to records) of a file from an offset on."""
        records, end, damaged, size = count(self.path_of(number), at, self.max_bytes)
        self.files[number] = size
        return records, end, damaged == 0

    def _tail(self, number: int, end: int, sound: bool) -> tuple[int, int]:
        """Where writing goes on; cuts half a record off."""
        size = self.files[number]
        if not sound or (end < size and not self._is_half_record(number, end, size)):
            # Reading will find its way through the damage; nothing may be added to it.
            return number + 1, 0
        if end < size:
            self.log.error("DISKQUEUE(%s): %s ends with half a record: %d bytes cut off", self.name,
                           self.path_of(number), size - end)
            os.truncate(self.path_of(number), end)
            self.files[number] = end
        return number, end

    def _is_half_record(self, number: int, end: int, size: int) -> bool:
        """Whether what follows the last whole record is one that was not written to its end; a file system may have
        left zeros there."""
        with open(self.path_of(number), "rb") as file:
            file.seek(end)
            rest = file.read(min(size - end, self.max_bytes))
        if len(rest) < 4 or not any(rest):
            return True
        return HEAD_BYTES <= 4 + int.from_bytes(rest[:4], "big", signed=True) <= self.max_bytes


def open_queue(folder: str, name: str, meta_path: str, max_bytes: int, path_of: Callable[[int], str],
               log: Any, files: dict[int, int] | None = None) -> Start:
    """Where the queue of that name begins. Raises OSError."""
    if files is None:
        files = diskmeta.data_files(folder, name)
    return Recovery(name, files, diskmeta.read(meta_path), max_bytes, path_of, log).start()
