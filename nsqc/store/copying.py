"""Copies a data path while a daemon uses it, and back.

A copy has everything that was on the disk, acknowledged, when it began. It is of no single moment, so the order
decides: a message leaves its place only once it is safe in the next one, from a topic to its channels, or between a
channel and a dead-letter topic. So the copy takes what says which messages are done (positions, journals) from all
queues before any data: a message that was done by then is in data that is copied later, and one that moves after that
is still where it was, or in both places. Names and ids come last: they may be of later channels and messages, never of
fewer.

Data files are opened before that, so those that the daemon removes meanwhile are copied too, as older positions name
them. Those that it begins meanwhile are opened after that, and no later ones: files only grow, and only the last of a
queue, so each is complete if there is another one after it. The copy is a folder as after a kill.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple

from nsqc.store.files import read_file, replace_file, sync_folder
from nsqc.store.log.names import GONE, OTHER, SUMMARY, TEMPORARY, topic_of
from nsqc.wire.outside import JSONError, decode

MARK = "nsqc.backup.json"       # in a complete copy
PART = ".part"                  # suffix of an incomplete one
LAST = ("nsqd.dat", "nsqd.dat.last", "nsqc.dat", "nsqc.rules.json", "nsqc.channel-rules.json", "nsqc.ids.dat")
PIECE = 1 << 20                 # bytes of one step
TRIES = 1000                    # until a folder stays the same while its journals are opened
UNABLE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)   # between these file systems
SPARE = 64                      # descriptors for other uses


class CopyError(Exception):
    """The copy cannot be made; the text says why."""


class Copied(NamedTuple):
    """What a copy has."""

    files: int
    bytes: int


def back_up(source: str, to: str) -> Copied:
    """Copies a data path into a new folder. Raises CopyError, OSError."""
    _check_new(to)
    if os.path.commonpath((os.path.realpath(source), os.path.realpath(to))) == os.path.realpath(source):
        raise CopyError(f"{to} is in the data path itself: name a folder elsewhere")
    part = to.rstrip("/") + PART
    try:
        os.mkdir(part, 0o700)
    except FileExistsError:
        raise CopyError(f"{part} exists, from a backup that was interrupted: remove it") from None
    copied = _Copy(source, part).run()
    mark = {"time": int(time.time()), "data_path": os.path.abspath(source), "files": copied.files,
            "bytes": copied.bytes}
    replace_file(os.path.join(part, MARK), json.dumps(mark).encode() + b"\n")
    with suppress(FileNotFoundError):
        os.rmdir(to)
    os.rename(part, to)
    sync_folder(os.path.dirname(os.path.abspath(to)))
    return copied


def restore(source: str, to: str) -> Copied:
    """Copies a backup into a new or empty data path. Raises CopyError, OSError."""
    try:
        mark = decode(read_file(os.path.join(source, MARK)))
        wanted = Copied(mark["files"], mark["bytes"])
    except FileNotFoundError:
        raise CopyError(f"{source} is not a complete backup: it has no {MARK}") from None
    except (JSONError, KeyError, TypeError):
        raise CopyError(f"{source}/{MARK} cannot be read: it is not JSON of nsqc backup") from None
    found = [path for path in _files(source) if path != MARK]
    have = Copied(len(found), sum(os.stat(os.path.join(source, path)).st_size for path in found))
    if have != wanted:
        raise CopyError(f"{source} has {have.files} files with {have.bytes} bytes in place of {wanted.files} with "
                        f"{wanted.bytes}: a part of the backup is missing, or was changed")
    _check_new(to)
    os.makedirs(to, exist_ok=True)
    copy = _Copy(source, to)
    for path in found:
        copy.take(path)
    copy.sync()
    return copy.copied


def _check_new(folder: str) -> None:
    """Raises CopyError unless a folder is missing or empty."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise CopyError(f"{folder} is not a folder") from None
    if names:
        raise CopyError(f"{folder} is not empty: it has {sorted(names)[0]}, for one; name a new folder")


def _files(source: str) -> Iterator[str]:
    """All files that a start may need, by their paths below a data path: its own, and those of its logs. A log may be a
    link to a folder elsewhere."""
    for name in sorted(os.listdir(source)):
        path = os.path.join(source, name)
        if topic_of(name) and not name.endswith(GONE) and os.path.isdir(path):
            with suppress(FileNotFoundError):       # deleted meanwhile
                yield from (f"{name}/{each}" for each in sorted(os.listdir(path))
                            if not TEMPORARY.fullmatch(each) and _is_file(os.path.join(path, each)))
        elif not name.endswith(".tmp") and ".retired-" not in name and _is_file(path):
            yield name


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def _is_progress(path: str) -> bool:
    """Whether a file records which messages are done."""
    folder, _, name = path.rpartition("/")
    if folder:
        return OTHER.fullmatch(name) is not None and not SUMMARY.fullmatch(name)
    return name.endswith(".meta.dat")


def copied(source: int, to: int, size: int) -> int:
    """Copies the first bytes of a file, which may grow meanwhile; returns how many there were. File systems that can
    share blocks copy nothing."""
    at = 0
    while at < size:
        piece = min(PIECE, size - at)
        try:
            count = os.copy_file_range(source, to, piece, at)
        except OSError as error:
            if error.errno not in UNABLE:
                raise
            count = os.write(to, os.pread(source, piece, at))
        if not count:
            break
        at += count
    return at


class _Copy:
    """One copy. paths are below both folders."""

    def __init__(self, source: str, to: str) -> None:
        self._source, self._to = source, to
        self._made: list[str] = []
        self._bytes = 0

    @property
    def copied(self) -> Copied:
        """What was copied so far."""
        return Copied(len(self._made), self._bytes)

    def run(self) -> Copied:
        """Everything, in the order that the module's text explains."""
        with ExitStack() as pins:
            opened = self._opened(pins, {})
            for folder in sorted({os.path.dirname(path) for path in _files(self._source) if _is_progress(path)}):
                self._take_progress(folder)
            opened = self._opened(pins, opened)
            for path, descriptor in sorted(opened.items()):
                if descriptor is None:
                    self.take(path)
                else:
                    self._write(path, descriptor)
        for path in LAST:
            self.take(path)
        self.sync()
        return self.copied

    def _opened(self, pins: ExitStack, before: dict[str, int | None]) -> dict[str, int | None]:
        """Data files, those from before included, and their descriptors; None: the process may have no more."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        opened = {**before}
        for path in _files(self._source):
            if path in opened or path in LAST or _is_progress(path):
                continue
            opened[path] = None
            if soft == resource.RLIM_INFINITY or len(opened) < soft - SPARE:
                try:
                    opened[path] = descriptor = os.open(os.path.join(self._source, path), os.O_RDONLY)
                    pins.callback(os.close, descriptor)
                except FileNotFoundError:
                    del opened[path]
        return opened

    def _take_progress(self, folder: str) -> None:
        """The journals of a log, which are one: a compaction may replace them meanwhile. Or the positions of queues,
        each of which stands for itself."""
        if not folder:
            for path in _files(self._source):
                if "/" not in path and _is_progress(path):
                    self.take(path)
            return
        for _ in range(TRIES):
            with ExitStack() as pins:
                before = self._progress_of(folder)
                try:
                    opened = {path: os.open(os.path.join(self._source, path), os.O_RDONLY) for path in before}
                except FileNotFoundError:
                    continue
                for descriptor in opened.values():
                    pins.callback(os.close, descriptor)
                if self._progress_of(folder) == before:
                    for path, descriptor in opened.items():
                        self._write(path, descriptor)
                    return
        raise CopyError(f"the journals in {os.path.join(self._source, folder)} change all the time")

    def _progress_of(self, folder: str) -> list[str]:
        try:
            names = os.listdir(os.path.join(self._source, folder))
        except FileNotFoundError:       # deleted meanwhile
            return []
        return sorted(f"{folder}/{name}" for name in names if _is_progress(f"{folder}/{name}"))

    def take(self, path: str) -> None:
        """Copies a file, unless it is gone."""
        try:
            descriptor = os.open(os.path.join(self._source, path), os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            self._write(path, descriptor)
        finally:
            os.close(descriptor)

    def _write(self, path: str, descriptor: int) -> None:
        to = os.path.join(self._to, path)
        owner = os.fstat(descriptor)
        if folder := os.path.dirname(path):
            self._make_folder(folder, owner)
        out = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(owner.st_mode))
        try:
            at = copied(descriptor, out, owner.st_size)
            if os.geteuid() == 0:
                os.fchown(out, owner.st_uid, owner.st_gid)
        finally:
            os.close(out)
        self._made.append(to)
        self._bytes += at

    def _make_folder(self, folder: str, owner: os.stat_result) -> None:
        path = os.path.join(self._to, folder)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            return
        if os.geteuid() == 0:
            os.chown(path, owner.st_uid, owner.st_gid)

    def sync(self) -> None:
        """Waits until all of it is on the disk."""
        for path in self._made:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        for folder in sorted({os.path.dirname(path) for path in self._made} | {self._to}, reverse=True):
            sync_folder(folder)
