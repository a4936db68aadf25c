"""Where a disk queue begins: its positions file compared with the data files that are there.

After a graceful stop the two agree and nothing is read. After a crash the data goes further than the positions, and
only what lies behind them is read. Otherwise every record from the read position on is counted.

Positions that contradict themselves or the files are not believed: then all that is there is delivered. A data file is
removed as consumed only where the positions are believed and a file that they name is there.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from nsqc.store.disk import diskmeta
from nsqc.store.disk.diskmeta import META, ODD
from nsqc.store.disk.segment import count

HEAD_BYTES = 30
LAST_NUMBER = 10**17 - 1  # of a file; longer names are not read as such
MAX_GAP = 1000  # numbers missing between two files, which reading steps over one by one


class Start(NamedTuple):
    """What a queue begins with."""

    depth: int
    read_number: int
    read_at: int
    write_number: int
    write_at: int
    consumed: list[str]  # files that were read through and not removed
    changed: bool  # the positions file does not say this yet


NEW = Start(0, 0, 0, 0, 0, [], False)


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
        """Positions and depth."""
        if len(self.files) > 1:
            self._close_gaps()
        if self.meta is None:
            if not self.files:
                return NEW
            self.log.error("DISKQUEUE(%s): no usable positions, they are rebuilt from the files", self.name)
            return self._recount((min(self.files), 0), [])
        _, read_number, read_at, write_number, write_at = self.meta
        if self.files and not self._is_credible():
            self.log.error("DISKQUEUE(%s): its positions %s do not fit its files, all that is there is delivered",
                           self.name, self.meta)
            return self._recount((min(self.files), 0), [])
        consumed = self._leave_behind(read_number)
        if not self._agrees():
            return self._recount((read_number, read_at), consumed)
        if self.files.get(write_number, 0) > write_at or (self.files and max(self.files) > write_number):
            return self._extend(consumed)
        return Start(*self.meta, consumed, False)

    def _close_gaps(self) -> None:
        """Renames files in front of a large gap to the numbers right before those behind it."""
        numbers = sorted(self.files)
        if numbers[-1] - numbers[0] <= MAX_GAP:
            return
        becomes = {numbers[-1]: numbers[-1]}
        for number, behind in reversed(list(itertools.pairwise(numbers))):
            gap = behind - number
            becomes[number] = becomes[behind] - (gap if gap <= MAX_GAP else 1)
        for number, new in becomes.items():
            if new != number:
                self.log.error("DISKQUEUE(%s): files are missing behind %s, it becomes %s", self.name,
                               self.path_of(number), self.path_of(new))
                os.rename(self.path_of(number), self.path_of(new))
                self.files[new] = self.files.pop(number)
        if self.meta is not None:
            depth, read_number, read_at, write_number, write_at = self.meta
            self.meta = (depth, becomes.get(read_number, read_number), read_at,
                         becomes.get(write_number, write_number), write_at)

    def _is_credible(self) -> bool:
        """Whether the read position may be believed, in front of which everything has been read."""
        depth, read_number, read_at, write_number, write_at = self.meta
        if (read_number, read_at) > (write_number, write_at):
            return False
        if read_number in self.files:
            return read_at <= self.files[read_number]
        if write_number in self.files:
            return write_at <= self.files[write_number]
        # Neither is there: so it is behind a file that was read through when it was full, and nowhere else.
        return depth == 0 and read_number == write_number and write_at == 0 and max(self.files) == read_number - 1

    def _leave_behind(self, read_number: int) -> list[str]:
        """Forgets the files in front of the read file; returns those that may be removed.

        Where none of the files is one that the positions name, only they say that the others were read: those are kept.
        """
        if not self.files or min(self.files) >= read_number:
            return []
        passed = sorted(number for number in self.files if number < read_number)
        for number in passed:
            del self.files[number]
        paths = [self.path_of(number) for number in passed]
        if self.files:
            return paths
        for path in paths:
            kept = diskmeta.set_aside(path)
            self.log.warn("DISKQUEUE(%s): %s lies before its positions and was read by what they say; it is kept as %s",
                          self.name, path, kept or path)
        return []

    def _agrees(self) -> bool:
        """Whether all that the positions speak of is there; more may be."""
        depth, read_number, read_at, write_number, write_at = self.meta
        waits = (read_number, read_at) < (write_number, write_at)
        if (read_number, read_at) > (write_number, write_at) or (depth > 0) != waits or depth < 0:
            return False
        if write_at > self.files.get(write_number, 0) or depth > sum(self.files.values()) // HEAD_BYTES:
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
            if number >= LAST_NUMBER:
                number = 0
            return Start(0, number, 0, number, 0, consumed, True)
        numbers = sorted(self.files)
        self._tell_missing(min(read_number, numbers[0]), numbers)
        if read_number not in self.files:
            read_number, read_at = numbers[0], 0
        depth = 0
        for number in numbers:
            records, end, sound = self._count(number, read_at if number == read_number else 0)
            depth += records
        self.log.warn("DISKQUEUE(%s): %d messages found in its files, where %d were expected", self.name, depth, known)
        return self._at(depth, (read_number, read_at), self._tail(numbers[-1], end, sound), consumed)

    def _tell_missing(self, first: int, numbers: list[int]) -> None:
        """Reports the files from first on that are not there."""
        missing = numbers[-1] + 1 - first - len(numbers)
        if missing:
            gap = next(first + at for at, number in enumerate(numbers) if number != first + at)
            self.log.error("DISKQUEUE(%s): %d files are missing, the first of them %s", self.name, missing,
                           self.path_of(gap))

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
        try:
            records, end, damaged, size = count(self.path_of(number), at, self.max_bytes)
        except OSError as error:
            # It stays, and reading tries again: for that, something must wait.
            self.log.error("DISKQUEUE(%s): cannot read %s - %s", self.name, self.path_of(number), error.strerror)
            return (1 if self.files[number] > at else 0), at, False
        self.files[number] = size
        return records, end, damaged == 0

    def _tail(self, number: int, end: int, sound: bool) -> tuple[int, int]:
        """Where writing goes on; cuts half a record off."""
        size, path = self.files[number], self.path_of(number)
        if sound and end == size:
            return number, end
        try:
            if sound and self._is_half_record(number, end, size):
                os.truncate(path, end)
                self.log.error("DISKQUEUE(%s): %s ends with half a record: %d bytes cut off", self.name, path,
                               size - end)
                self.files[number] = end
                return number, end
        except OSError as error:
            self.log.error("DISKQUEUE(%s): cannot repair %s - %s", self.name, path, error.strerror)
        # Reading will find its way through the damage; nothing may be added to it.
        return number + 1, 0

    def _is_half_record(self, number: int, end: int, size: int) -> bool:
        """Whether what follows the last whole record is one that was not written to its end; a file system may have
        left zeros there."""
        with open(self.path_of(number), "rb") as file:
            file.seek(end)
            rest = file.read(min(size - end, self.max_bytes))
        if len(rest) < 4 or not any(rest):
            return True
        return HEAD_BYTES <= 4 + int.from_bytes(rest[:4], "big", signed=True) <= self.max_bytes


def open_queue(folder: str, name: str, meta_path: str, max_bytes: int, path_of: Callable[[int], str], log: Any,
               files: dict[int, int] | None = None) -> Start:
    """Where the queue of that name begins. files: as diskmeta.queue_files() has them; None: that is asked.

    What stands in place of a file and is none is renamed to .bad. Raises OSError.
    """
    if files is None:
        files = diskmeta.queue_files(folder, name)
    if not files:
        return NEW
    blocked = -1
    if ODD in files.values():
        files, blocked = clear(name, files, meta_path, path_of, log)
    meta = diskmeta.read(meta_path) if META in files else None
    files.pop(META, None)
    start = Recovery(name, files, meta, max_bytes, path_of, log).start()
    if blocked >= 0 and start.write_number <= blocked:
        # That name cannot be written to.
        waits = (start.read_number, start.read_at) < (start.write_number, start.write_at)
        start = start._replace(write_number=blocked + 1, write_at=0, changed=True)
        if not waits:
            start = start._replace(read_number=blocked + 1, read_at=0)
    return start


def clear(name: str, files: dict[int, int], meta_path: str, path_of: Callable[[int], str],
          log: Any) -> tuple[dict[int, int], int]:
    """Sets aside what is no file; the files, and the highest number under which something else had to stay, or -1."""
    found, blocked = {}, -1
    for number, size in files.items():
        if size != ODD:
            found[number] = size
            continue
        path = meta_path if number == META else path_of(number)
        kept = diskmeta.set_aside(path)
        if kept is None:
            log.error("DISKQUEUE(%s): %s is not a file and cannot be renamed", name, path)
            blocked = max(blocked, number)
        else:
            log.error("DISKQUEUE(%s): %s is not a file, it is kept as %s", name, path, kept)
    return found, blocked
