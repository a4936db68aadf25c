"""Finds where a disk queue starts: compares its positions file with the existing data files.

After a graceful stop the two agree and nothing is read. After a crash the data extends beyond the positions, and only
that tail is read. Otherwise every record from the read position on is counted.

Positions that contradict themselves or the files are not trusted: then every record in the files is delivered. A data
file is removed as consumed only if the positions are trusted and a file that they name exists.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from contextlib import suppress
from typing import NamedTuple

from nsqc.log import Log
from nsqc.store import files as badfiles
from nsqc.store.disk.fileio import META, is_leftover, path_of, split_name
from nsqc.store.disk.segment import RECORD_HEAD_BYTES, RECORD_SIZE_BYTES, count
from nsqc.store.files import sync_folder

# ====================================================================== positions
# The positions file of a disk queue.
#
#     DEPTH
#     READ_FILE,READ_OFFSET
#     WRITE_FILE,WRITE_OFFSET

FORM = re.compile(rb"(-?\d{1,17})\n(\d{1,17}),(\d{1,17})\n(\d{1,17}),(\d{1,17})\n?")


class Positions(NamedTuple):
    """The number of waiting messages, and where reading and writing continue."""

    depth: int
    read_number: int
    read_at: int
    write_number: int
    write_at: int

    @property
    def read(self) -> tuple[int, int]:
        """File and offset of the next record to read."""
        return self.read_number, self.read_at

    @property
    def write(self) -> tuple[int, int]:
        """File and offset after the last record."""
        return self.write_number, self.write_at


def encode(depth: int, read_number: int, read_at: int, write_number: int, write_at: int) -> bytes:
    """The contents of the file."""
    return b"%d\n%d,%d\n%d,%d\n" % (depth, read_number, read_at, write_number, write_at)


def read(path: str) -> Positions | None:
    """Parses a positions file; None if it is missing or invalid."""
    try:
        # Non-blocking: a named pipe at this path must not block the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            form = FORM.fullmatch(os.read(descriptor, 200))
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return Positions(*map(int, form.groups())) if form else None


# ====================================================================== index
# Lists the queue files of a data path: of one queue, of all, and an index for daemon startup.

ODD = -1  # instead of a size: not a file but a folder, a device, or a dangling link


class Index:
    """All queue files at daemon startup, from one listing for all queues.

    No other process writes to the data path while it is locked. So a name that the index lacks, or no longer has, has
    no files: creating a topic later needs no listing, regardless of the number of topics.

    Removes leftovers of an earlier run.
    """

    def __init__(self, folder: str):
        self.folder = folder
        self.queues: dict[str, dict[int, int]] = {}  # TOPIC or TOPIC:CHANNEL, not opened yet; files as queue_files()
        self.temporaries: list[str] = []  # other files whose writing was interrupted
        with os.scandir(folder) as entries:
            for entry in entries:
                self._add(entry)

    def _add(self, entry: os.DirEntry[str]) -> None:
        name = entry.name
        parts = split_name(name)
        if parts is not None:
            self.queues.setdefault(parts[0], {})[parts[1]] = size_of(entry)
        elif is_leftover(name):
            with suppress(OSError):
                os.unlink(entry.path)
        elif name.endswith(".tmp"):
            self.temporaries.append(name)

    def take(self, queue: str) -> dict[int, int]:
        """Hands over the files of a queue being opened, which keeps track of them from now on."""
        return self.queues.pop(queue, {})

    def loaded(self) -> None:
        """All queues of earlier runs are open. A folder with the name of a new queue's first file is left alone: as
        in nsqd, writing fails until it is removed."""
        for name, files in list(self.queues.items()):
            if all(size == ODD and os.path.isdir(path_of(self.folder, name, number)) for number, size in files.items()):
                del self.queues[name]

    def names(self, with_messages: bool) -> list[str]:
        """Names of queues with files, sorted; with_messages: only those with a non-empty data file."""
        return sorted(name for name, files in self.queues.items()
                      if not with_messages or any(size > 0 for number, size in files.items() if number != META))


def size_of(entry: os.DirEntry[str]) -> int:
    """The size of a file, or of a link's target; ODD for anything else."""
    try:
        status = entry.stat()
    except OSError:
        return ODD
    return status.st_size if stat.S_ISREG(status.st_mode) else ODD


def queue_files(folder: str, name: str) -> dict[int, int]:
    """Everything named like a file of this queue: number or META to size or ODD. Raises OSError."""
    files = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(name):
                parts = split_name(entry.name)
                if parts is not None and parts[0] == name:
                    files[parts[1]] = size_of(entry)
    return files


def listing(folder: str) -> dict[str, dict[int, int]]:
    """All queues with data files: their numbers in order, with sizes. Counts only regular files. Raises OSError."""
    queues: dict[str, dict[int, int]] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            parts = split_name(entry.name)
            if parts is not None and parts[1] != META and (size := size_of(entry)) != ODD:
                queues.setdefault(parts[0], {})[parts[1]] = size
    return {name: dict(sorted(files.items())) for name, files in queues.items()}


# ====================================================================== recovery

LAST_NUMBER = 10**17 - 1  # highest file number; longer names are not recognized
MAX_GAP = 1000  # missing numbers between two files; reading tries each of them


class Start(NamedTuple):
    """The initial state of a queue."""

    positions: Positions
    consumed: list[str]  # files that were read to their end but not removed
    changed: bool  # the positions file is out of date
    synced: tuple[int, int]  # file and offset: data after it was written by a run that may not have synced it


NEW = Start(Positions(0, 0, 0, 0, 0), [], False, (0, 0))


class Recovery:
    """One queue being opened. files: data file number to size; meta: contents of the positions file, or None."""

    def __init__(self, folder: str, name: str, files: dict[int, int], meta: Positions | None, max_bytes: int, log: Log):
        self.folder = folder
        self.name = name
        self.files = files
        self.meta = meta
        self.max_bytes = max_bytes  # of a record
        self.log = log

    def start(self) -> Start:
        """Positions and depth."""
        if len(self.files) > 1:
            self._close_gaps()
        meta = self.meta
        if meta is None:
            if not self.files:
                return NEW
            self.log.error("DISKQUEUE(%s): no usable positions, rebuilding them from the files", self.name)
            return self._recount((min(self.files), 0), [])
        if self.files and not self._is_credible(meta):
            self.log.error("DISKQUEUE(%s): positions %s do not match the files, delivering every record found",
                           self.name, tuple(meta))
            return self._recount((min(self.files), 0), [])
        consumed = self._leave_behind(meta)
        if not self._agrees(meta):
            return self._recount(meta.read, consumed)
        if self.files.get(meta.write_number, 0) > meta.write_at or (self.files and max(self.files) > meta.write_number):
            return self._extend(meta, consumed)
        return Start(meta, consumed, False, meta.write)

    def _path_of(self, number: int) -> str:
        return path_of(self.folder, self.name, number)

    def _close_gaps(self) -> None:
        """Renumbers files before a large gap to directly precede those after it."""
        numbers = sorted(self.files)
        if numbers[-1] - numbers[0] <= MAX_GAP:
            return
        becomes = {numbers[-1]: numbers[-1]}
        for number, behind in reversed(list(itertools.pairwise(numbers))):
            gap = behind - number
            becomes[number] = becomes[behind] - (gap if gap <= MAX_GAP else 1)
        for number, new in becomes.items():
            if new != number:
                self.log.error("DISKQUEUE(%s): files are missing after %s, it becomes %s", self.name,
                               self._path_of(number), self._path_of(new))
                os.rename(self._path_of(number), self._path_of(new))
                self.files[new] = self.files.pop(number)
        sync_folder(self.folder)
        if self.meta is not None:
            self.meta = self.meta._replace(read_number=becomes.get(self.meta.read_number, self.meta.read_number),
                                           write_number=becomes.get(self.meta.write_number, self.meta.write_number))

    def _is_credible(self, meta: Positions) -> bool:
        """Whether to trust the read position, which implies that everything before it has been read."""
        if meta.read > meta.write:
            return False
        if meta.read_number in self.files:
            return meta.read_at <= self.files[meta.read_number]
        if meta.write_number in self.files:
            return meta.write_at <= self.files[meta.write_number]
        # Neither file exists: correct only after a file that was read to its end when it was full.
        return (meta.depth == 0 and meta.read_number == meta.write_number and meta.write_at == 0
                and max(self.files) == meta.read_number - 1)

    def _leave_behind(self, meta: Positions) -> list[str]:
        """Drops the files before the read file; returns those that may be removed.

        If no file named by the positions exists, only the positions claim that the others were read: those are kept.
        """
        if not self.files or min(self.files) >= meta.read_number:
            return []
        passed = sorted(number for number in self.files if number < meta.read_number)
        for number in passed:
            del self.files[number]
        paths = [self._path_of(number) for number in passed]
        if self.files:
            return paths
        for path in paths:
            aside = badfiles.set_aside(path)
            self.log.warn("DISKQUEUE(%s): %s is before the read position and counts as read; kept as %s",
                          self.name, path, aside or path)
        return []

    def _agrees(self, meta: Positions) -> bool:
        """Whether everything named by the positions exists; there may be more."""
        waits = meta.read < meta.write
        if meta.read > meta.write or (meta.depth > 0) != waits or meta.depth < 0:
            return False
        if (meta.write_at > self.files.get(meta.write_number, 0)
                or meta.depth > sum(self.files.values()) // RECORD_HEAD_BYTES):
            return False
        if meta.read_number < meta.write_number:
            return (all(number in self.files for number in range(meta.read_number, meta.write_number))
                    and meta.read_at < self.files[meta.read_number])
        return True

    def _extend(self, meta: Positions, consumed: list[str]) -> Start:
        """Counts records written after the positions."""
        write_at, total = meta.write_at, 0
        for number in sorted(number for number in self.files if number >= meta.write_number):
            records, write_at, sound = self._count(number, write_at if number == meta.write_number else 0)
            total += records
            last, last_sound = number, sound
        self.log.warn("DISKQUEUE(%s): was not closed cleanly, %d messages found after its write position",
                      self.name, total)
        return self._at(meta.depth + total, meta.read, self._tail(last, write_at, last_sound), consumed, meta.write)

    def _recount(self, read: tuple[int, int], consumed: list[str]) -> Start:
        """Counts all waiting records."""
        read_number, read_at = read
        known = max(self.meta.depth, 0) if self.meta else 0
        if not self.files:
            if self.meta != (0, read_number, read_at, *read):
                self.log.error("DISKQUEUE(%s): its data files are missing, %d messages are lost", self.name, known)
            number = max(read_number, self.meta.write_number if self.meta else 0) + 1
            if number >= LAST_NUMBER:
                number = 0
            return Start(Positions(0, number, 0, number, 0), consumed, True, (number, 0))
        numbers = sorted(self.files)
        self._report_missing(min(read_number, numbers[0]), numbers)
        if read_number not in self.files:
            read_number, read_at = numbers[0], 0
        depth = 0
        for number in numbers:
            records, end, sound = self._count(number, read_at if number == read_number else 0)
            depth += records
        self.log.warn("DISKQUEUE(%s): %d messages found in its files, %d expected", self.name, depth, known)
        return self._at(depth, (read_number, read_at), self._tail(numbers[-1], end, sound), consumed, (read_number, 0))

    def _report_missing(self, first: int, numbers: list[int]) -> None:
        """Logs the missing files from first on."""
        missing = numbers[-1] + 1 - first - len(numbers)
        if missing:
            gap = next(first + at for at, number in enumerate(numbers) if number != first + at)
            self.log.error("DISKQUEUE(%s): %d files are missing, the first of them %s", self.name, missing,
                           self._path_of(gap))

    def _at(self, depth: int, read: tuple[int, int], write: tuple[int, int], consumed: list[str],
            synced: tuple[int, int]) -> Start:
        """Moves a read position at the end of a finished file to the start of the next one: nsqd would also take it for
        damage."""
        number, at = read
        while number < write[0] and at >= self.files.get(number, 0):
            if number in self.files:
                consumed = [*consumed, self._path_of(number)]
            number, at = number + 1, 0
        return Start(Positions(depth, number, at, *write), consumed, True, synced)

    def _count(self, number: int, at: int) -> tuple[int, int, bool]:
        """(records, end of the last, whether all bytes up to there belong to records) of a file from an offset on."""
        try:
            records, end, damaged, size = count(self._path_of(number), at, self.max_bytes)
        except OSError as error:
            # The file stays, and reading retries if messages wait.
            self.log.error("DISKQUEUE(%s): cannot read %s - %s", self.name, self._path_of(number), error.strerror)
            return (1 if self.files[number] > at else 0), at, False
        self.files[number] = size
        return records, end, damaged == 0

    def _tail(self, number: int, end: int, sound: bool) -> tuple[int, int]:
        """Where writing continues; cuts off a torn record."""
        size, path = self.files[number], self._path_of(number)
        if sound and end == size:
            return number, end
        try:
            # A link may lead to anything, which is not cut off.
            if sound and not os.path.islink(path) and self._is_incomplete_record(number, end, size):
                with open(path, "r+b") as file:
                    file.truncate(end)
                self.log.error("DISKQUEUE(%s): %s ends with a torn write: %d bytes cut off", self.name, path,
                               size - end)
                self.files[number] = end
                return number, end
        except OSError as error:
            self.log.error("DISKQUEUE(%s): cannot repair %s - %s", self.name, path, error.strerror)
        # Reading will skip the damage; nothing may be appended to it.
        return number + 1, 0

    def _is_incomplete_record(self, number: int, end: int, size: int) -> bool:
        """Whether the bytes after the last whole record are a torn write; a file system may have left zeros
        instead."""
        with open(self._path_of(number), "rb") as file:
            file.seek(end)
            rest = file.read(min(size - end, self.max_bytes))
        if len(rest) < RECORD_SIZE_BYTES or not any(rest):
            return True
        length = RECORD_SIZE_BYTES + int.from_bytes(rest[:RECORD_SIZE_BYTES], "big", signed=True)
        return RECORD_HEAD_BYTES <= length <= self.max_bytes


def open_queue(folder: str, name: str, max_bytes: int, log: Log, files: dict[int, int] | None = None) -> Start:
    """Opens the queue of that name. files: as returned by index.queue_files(); None: lists them.

    Anything named like a data file that is not a regular file is renamed to .bad. Raises OSError.
    """
    if files is None:
        files = queue_files(folder, name)
    if not files:
        return NEW
    blocked = -1
    if ODD in files.values():
        files, blocked = clear(folder, name, files, log)
    meta = read(path_of(folder, name, META)) if META in files else None
    files.pop(META, None)
    start = Recovery(folder, name, files, meta, max_bytes, log).start()
    if blocked >= 0 and start.positions.write_number <= blocked:
        # That name cannot be written to.
        waits = start.positions.read < start.positions.write
        unblocked = start.positions._replace(write_number=blocked + 1, write_at=0)
        if not waits:
            unblocked = unblocked._replace(read_number=blocked + 1, read_at=0)
        start = start._replace(positions=unblocked, changed=True)
    return start


def clear(folder: str, name: str, files: dict[int, int], log: Log) -> tuple[dict[int, int], int]:
    """Sets aside non-files; returns the files, and the highest number still taken by something else, or -1."""
    regular, blocked = {}, -1
    for number, size in files.items():
        if size != ODD:
            regular[number] = size
            continue
        path = path_of(folder, name, number)
        aside = badfiles.set_aside(path)
        if aside is None:
            log.error("DISKQUEUE(%s): %s is not a regular file and cannot be renamed", name, path)
            blocked = max(blocked, number)
        else:
            log.error("DISKQUEUE(%s): %s is not a regular file, kept as %s", name, path, aside)
    return regular, blocked
