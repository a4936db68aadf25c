"""Examines the files of a disk queue, without a running daemon: contents and faults."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import BinaryIO, NamedTuple

from nsqc.store.disk import recovery
from nsqc.store.disk.fileio import META, is_leftover, path_of, split_name
from nsqc.store.disk.recovery import ODD, Positions, queue_files
from nsqc.store.disk.segment import RECORD_HEAD_BYTES, RECORD_SIZE_BYTES, count
from nsqc.store.files import bad_name, keep_bad, replace_file, set_aside, sync_folder
from nsqc.store.peek import read

# ====================================================================== check

LARGEST_RECORD = 2**31 - 1      # of any daemon
READ_BYTES = 256 * 1024


class DataFile(NamedTuple):
    """A data file from the position where reading starts."""

    number: int
    path: str
    size: int       # bytes; ODD: not a regular file
    start: int      # where unread messages start
    records: int    # intact ones from there on
    end: int        # after the last intact record
    damaged: int    # bytes after the start that belong to no record
    too_large: int  # intact records larger than allowed


class Queue(NamedTuple):
    """The current files of a queue."""

    folder: str
    name: str                   # TOPIC or TOPIC:CHANNEL
    meta: Positions | None      # None: the positions file is missing or invalid
    has_meta: bool              # something has the name of the positions file
    trusted: bool               # the positions match the files: reading starts at them
    read: tuple[int, int]       # where reading starts: file and offset
    files: list[DataFile]       # unread files, by number
    consumed: list[int]         # numbers of files before these
    missing: list[int]          # missing numbers between these files; at most MOST_MISSING
    bad: list[str]              # files set aside earlier
    leftovers: list[str]        # files whose writing or removal was interrupted

    @property
    def depth(self) -> int:
        """Intact unread messages."""
        return sum(file.records for file in self.files)

    @property
    def write(self) -> tuple[int, int]:
        """Where writing may continue: after the last file's last record, or in the next file."""
        if not self.files:
            return self.read
        last = self.files[-1]
        return (last.number, last.end) if last.end == last.size else (last.number + 1, 0)

    @property
    def right_meta(self) -> Positions:
        """The correct positions for the current files."""
        return Positions(self.depth, *self.read, *self.write)


class Finding(NamedTuple):
    """A difference from the state that a daemon leaves."""

    path: str
    text: str
    is_fault: bool      # False: a start handles it, and nothing is lost


MOST_MISSING = 1000


def queue_names(folder: str) -> list[str]:
    """All queues with files in a data path, sorted. Raises OSError."""
    return sorted({parts[0] for name in os.listdir(folder) if (parts := split_name(name)) is not None})


def look(folder: str, name: str, max_record: int) -> Queue:
    """Reads all unread records of a queue. max_record: bytes of the largest record allowed. Raises OSError."""
    files = queue_files(folder, name)
    has_meta = META in files
    meta = recovery.read(path_of(folder, name, META)) if has_meta else None
    files.pop(META, None)
    numbers = sorted(files)
    trusted = meta is not None and is_credible(meta, files)
    begin = meta.read if meta is not None and trusted else ((numbers[0], 0) if numbers else (0, 0))
    waiting = [number for number in numbers if number >= begin[0]]
    if waiting and waiting[0] > begin[0]:
        begin = (waiting[0], 0)
    looked = [look_at(folder, name, number, files[number], begin[1] if number == begin[0] else 0, max_record)
              for number in waiting]
    missing = list(itertools.islice(gaps(begin[0], waiting), MOST_MISSING))
    others = [entry for entry in sorted(os.listdir(folder)) if entry.startswith(f"{name}.diskqueue.")]
    return Queue(folder, name, meta, has_meta, trusted, begin, looked, [n for n in numbers if n < begin[0]],
                 missing, [entry for entry in others if ".dat.bad" in entry],
                 [entry for entry in others if is_leftover(entry)])


def gaps(begin: int, numbers: list[int]) -> Iterator[int]:
    """The numbers from begin on that are missing between these, which are in order."""
    for number in numbers:
        yield from range(begin, number)
        begin = number + 1


def is_credible(meta: Positions, files: dict[int, int]) -> bool:
    """Whether the read position is plausible: a start uses the same test."""
    if meta.read > meta.write or meta.depth < 0:
        return False
    if meta.read_number in files:
        return meta.read_at <= files[meta.read_number]
    if meta.write_number in files:
        return meta.write_at <= files[meta.write_number]
    return not files or (meta.depth == 0 and meta.read == meta.write and meta.write_at == 0
                         and max(files) == meta.read_number - 1)


def look_at(folder: str, name: str, number: int, size: int, start: int, max_record: int) -> DataFile:
    """Reads one file. Raises OSError."""
    path = path_of(folder, name, number)
    if size == ODD:
        return DataFile(number, path, ODD, 0, 0, 0, 0, 0)
    records, end, damaged, size = count(path, start, max_record)
    damaged += size - end
    too_large = 0
    if damaged:
        any_size = count(path, start, LARGEST_RECORD)
        if any_size[2] + any_size[3] - any_size[1] < damaged:
            too_large = max(any_size[0] - records, 1)
    return DataFile(number, path, size, start, records, end, damaged, too_large)


def findings(queue: Queue) -> list[Finding]:
    """Lists faults of a queue, and leftovers of its last daemon."""
    found = []
    meta_path = path_of(queue.folder, queue.name, META)
    if queue.files and queue.meta is None:
        text = "cannot be parsed" if queue.has_meta else "is missing"
        found.append(Finding(meta_path, f"{text}; every message in the files would be delivered", True))
    elif queue.meta is not None and not queue.trusted:
        found.append(Finding(meta_path, f"its positions {tuple(queue.meta)} do not match the files", True))
    for file in queue.files:
        found += of_file(queue, file)
    if queue.missing:
        more = " or more" if len(queue.missing) == MOST_MISSING else ""
        found.append(Finding(path_of(queue.folder, queue.name, queue.missing[0]),
                             f"is missing, {len(queue.missing)}{more} files in all; their messages are lost", True))
    found += of_positions(queue, meta_path)
    if queue.consumed:
        found.append(Finding(path_of(queue.folder, queue.name, queue.consumed[0]),
                             f"was read to its end but not removed, like {len(queue.consumed) - 1} others", False))
    found += [Finding(os.path.join(queue.folder, name), "was set aside earlier", False) for name in queue.bad]
    found += [Finding(os.path.join(queue.folder, name), "its writing or removal was interrupted", False)
              for name in queue.leftovers]
    return found


def of_file(queue: Queue, file: DataFile) -> list[Finding]:
    """Lists faults of one file."""
    if file.size == ODD:
        return [Finding(file.path, "is not a regular file", True)]
    if file.too_large:
        return [Finding(file.path, f"has {file.too_large} messages larger than --max-msg-size", True)]
    if not file.damaged:
        return []
    if file is queue.files[-1] and file.damaged == file.size - file.end and is_torn(file):
        return [Finding(file.path, f"ends with a torn write, {file.damaged} bytes", False)]
    return [Finding(file.path, f"{file.damaged} bytes belong to no message; {file.records} intact messages", True)]


def is_torn(file: DataFile) -> bool:
    """Whether the file ends with a torn write, as a kill leaves it."""
    with open(file.path, "rb") as data:
        data.seek(file.end)
        rest = data.read(RECORD_HEAD_BYTES)
    if len(rest) < RECORD_SIZE_BYTES or not any(rest):
        return True
    length = RECORD_SIZE_BYTES + int.from_bytes(rest[:RECORD_SIZE_BYTES], "big", signed=True)
    return length >= RECORD_HEAD_BYTES and length > file.size - file.end


def of_positions(queue: Queue, meta_path: str) -> list[Finding]:
    """Lists differences between trusted positions and the files."""
    meta = queue.meta
    if meta is None or not queue.trusted or meta == queue.right_meta:
        return []
    last = queue.files[-1] if queue.files else None
    if last is None:
        text = f"records {meta.depth} waiting messages, but there are no files"
        return [Finding(meta_path, text, True)] if meta.depth > 0 else []
    if meta.write > (last.number, last.size) and meta.write != (last.number + 1, 0):
        return [Finding(meta_path, f"records data up to {meta.write_at} in file {meta.write_number}, but data ends at "
                                   f"{last.size} in file {last.number}", True)]
    if meta.depth != queue.depth:
        return [Finding(meta_path, f"records {meta.depth} waiting messages, but there are {queue.depth}: not closed "
                                   "cleanly, or some are damaged", False)]
    return []


def intact(file: DataFile, max_record: int) -> Iterator[bytes]:
    """Yields parts of a file from its start, each of whole records. Raises OSError."""
    at = file.start
    while True:
        found = read(file.path, at, -1, max_record, READ_BYTES)
        if not found.data:
            return
        yield found.data
        at = found.end


# ====================================================================== repair
# Repairs the files of a disk queue, without a running daemon.
#
# Every replaced file is kept as NAME.bad. Each step leaves files that a daemon can read: messages in a damaged file
# stay after the same read position, and the positions are written last. So an interrupted repair can simply be run
# again.

COPY_BYTES = 1 << 20

Report = Callable[[str], None]


class TooLarge(Exception):
    """Intact messages are larger than allowed: with the right limit they would not be lost."""


class Repair:
    """One queue. max_record: bytes of the largest record allowed; dry_run: only reports what it would do."""

    def __init__(self, folder: str, name: str, max_record: int, report: Report, dry_run: bool = False):
        self.folder, self.name = folder, name
        self.max_record = max_record
        self.report = report
        self.dry_run = dry_run
        self.steps = 0

    def run(self) -> int:
        """Repairs the queue; returns their number. Raises OSError, TooLarge; then nothing is lost, and it can
        be run again."""
        queue = look(self.folder, self.name, self.max_record)
        for file in queue.files:
            if file.too_large:
                raise TooLarge(f"{file.path} has {file.too_large} messages larger than --max-msg-size: give "
                               "the daemon's")
        for file in queue.files:
            if file.size == ODD:
                self._set_aside(file.path, "is not a regular file, renamed to .bad")
            elif file.damaged:
                self._mend(file)
        if not self.dry_run and self.steps:
            queue = look(self.folder, self.name, self.max_record)
        if queue.missing and self._close_gaps(queue):
            queue = look(self.folder, self.name, self.max_record)
        self._positions(queue)
        return self.steps

    def _step(self, path: str, text: str) -> bool:
        """Reports a step; returns whether to take it."""
        self.steps += 1
        self.report(f"{path}: {text}")
        return not self.dry_run

    def _set_aside(self, path: str, text: str) -> None:
        if self._step(path, text) and set_aside(path) is None:
            raise OSError(None, "cannot be renamed", path)

    def _mend(self, file: DataFile) -> None:
        """Rewrites a damaged file without the bytes that belong to no message."""
        text = f"rewritten without {file.damaged} damaged bytes; {file.records} messages kept"
        if not self._step(file.path, text):
            return
        temporary = f"{file.path}.{os.getpid()}.tmp"
        try:
            with open(temporary, "xb") as copy:
                os.fchmod(copy.fileno(), os.stat(file.path).st_mode & 0o777)
                copy_start(file, copy)
                for piece in intact(file, self.max_record):
                    copy.write(piece)
                copy.flush()
                os.fsync(copy.fileno())
            if not keep_bad(file.path):
                # A file system without hard links: briefly, the file exists only as .bad.
                os.rename(file.path, bad_name(file.path))
            sync_folder(self.folder)
            os.replace(temporary, file.path)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
        sync_folder(self.folder)

    def _close_gaps(self, queue: Queue) -> bool:
        """Renumbers files before a gap to directly precede those after it: nsqd stops reading at each missing number.
        Returns whether it did so."""
        becomes = {queue.files[-1].number: queue.files[-1].number}
        for file, behind in reversed(list(pairwise(queue.files))):
            becomes[file.number] = becomes[behind.number] - 1
        moved = {number: new for number, new in becomes.items() if number != new}
        first = min(becomes)
        text = f"renamed to the number {becomes[first]}, and {len(moved) - 1} others likewise: later files are missing"
        if not self._step(path_of(self.folder, self.name, first), text):
            return False
        for number, new in moved.items():
            os.rename(path_of(self.folder, self.name, number), path_of(self.folder, self.name, new))
        read_at = queue.read[1] if queue.read[0] == first else 0
        sync_folder(self.folder)
        replace_file(path_of(self.folder, self.name, META),
                     recovery.encode(queue.depth, becomes[first], read_at, *queue.write))
        return True

    def _positions(self, queue: Queue) -> None:
        if queue.meta is None and not queue.files and not queue.has_meta:
            return
        right = queue.right_meta
        at_end = not queue.files and queue.trusted and queue.meta is not None and queue.meta.depth == 0
        if queue.meta == right or at_end:
            return
        path = path_of(self.folder, self.name, META)
        before = "nothing usable" if queue.meta is None else f"{tuple(queue.meta)}"
        text = f"positions written: {right.depth} waiting messages, from {right.read_at} in file {right.read_number}"
        if self._step(path, f"{text}; before: {before}"):
            if os.path.isdir(path):
                os.rename(path, bad_name(path))
            elif os.path.lexists(path):
                keep_bad(path)
            replace_file(path, recovery.encode(*right))


def copy_start(file: DataFile, copy: BinaryIO) -> None:
    """The bytes before the read position, unchanged, so the position stays right."""
    with open(file.path, "rb") as data:
        left = file.start
        while left and (piece := data.read(min(left, COPY_BYTES))):
            copy.write(piece)
            left -= len(piece)
