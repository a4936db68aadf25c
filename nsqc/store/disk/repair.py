"""Repairs the files of a disk queue, without a running daemon.

Every replaced file is kept as NAME.bad. Each step leaves files that a daemon can read: messages in a damaged file stay
after the same read position, and the positions are written last. So an interrupted repair can simply be run
again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import BinaryIO

from nsqc.store.badfiles import bad_name, keep_bad, set_aside
from nsqc.store.disk import positions
from nsqc.store.disk.check import DataFile, Queue, intact, look
from nsqc.store.disk.index import ODD
from nsqc.store.disk.names import META, path_of
from nsqc.store.files import replace_file, sync_folder

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
                     positions.encode(queue.depth, becomes[first], read_at, *queue.write))
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
            replace_file(path, positions.encode(*right))


def copy_start(file: DataFile, copy: BinaryIO) -> None:
    """The bytes before the read position, unchanged, so the position stays right."""
    with open(file.path, "rb") as data:
        left = file.start
        while left and (piece := data.read(min(left, COPY_BYTES))):
            copy.write(piece)
            left -= len(piece)
