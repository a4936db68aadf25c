"""Records of a log for clients: found on a worker thread, and sent as the file's frames or as lines of JSON."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from nsqc.httpd.streaming import Stream
from nsqc.store.log import reading
from nsqc.store.log.names import Bounds, segment_path
from nsqc.store.log.reading import Run

# A shorter body is read during the search; a longer one is sent in pieces.
SHORT_BYTES = 64 * 1024
# Limits of one call of send(): for a socket, and for a transport, where bytes stay until the client reads.
_SENT_AT_ONCE = 4 * 1024 * 1024
_KEPT_BYTES = 16 * 1024
_READ_AT_ONCE = 64 * 1024
# Bytes that one call checks, in some milliseconds: a longer range continues after other work of the thread.
_CHECKED_AT_ONCE = 4 * 1024 * 1024
_CHECKED_LINES_AT_ONCE = 1024 * 1024


class Wanted(NamedTuple):
    """The limits of a request, from an offset on."""

    max_messages: int
    max_bytes: int      # at least one record or frame of any size
    as_lines: bool


class Found:
    """The records for a client: a short body, or their place in a file."""

    __slots__ = ("body", "place", "run", "stream")

    def __init__(self, run: Run, place: tuple[int, int], body: bytes, stream: Frames | Lines | None) -> None:
        self.run = run
        self.place = place          # device and inode: the name may belong to another topic's file by now
        self.body = body
        self.stream = stream


def find(folder: str, segment: Bounds, offset: int, position: int, wanted: Wanted) -> Found:
    """The first run of valid frames of a segment from an offset on, or its beginning: see longer(). position: see
    find_run(). Runs on a worker thread. Raises OSError."""
    with opened(folder, segment) as file:
        run = reading.find_run(file, segment, max(offset, segment[0]), position, wanted.max_messages,
                               min(wanted.max_bytes, _at_once(wanted)), wanted.as_lines)
        return _found(folder, segment, file, run, wanted)


def is_part(segment: Bounds, run: Run, wanted: Wanted) -> bool:
    """Whether longer() may extend the run of find()."""
    return (_at_once(wanted) < wanted.max_bytes and run.first < run.next < segment[1]
            and run.next - run.first < wanted.max_messages and run.end - run.start < wanted.max_bytes)


def longer(folder: str, segment: Bounds, found: Found, wanted: Wanted) -> Found | None:
    """The same run, extended; None: no more records. Runs on a worker thread. Raises OSError."""
    before = found.run
    with opened(folder, segment) as file:
        if _place(file) != found.place:
            return None
        more = reading.find_run(file, segment, before.next, before.last if wanted.as_lines else before.end,
                                wanted.max_messages - (before.next - before.first),
                                min(wanted.max_bytes - (before.end - before.start), _at_once(wanted)), wanted.as_lines)
        if (more.damaged or not more.first == before.next < more.next
                or (not wanted.as_lines and more.end - before.start > wanted.max_bytes)):
            return None
        run = before._replace(next=more.next, end=more.end, last=more.last, lines=before.lines + more.lines)
        return _found(folder, segment, file, run, wanted)


def _at_once(wanted: Wanted) -> int:
    return _CHECKED_LINES_AT_ONCE if wanted.as_lines else _CHECKED_AT_ONCE


def _found(folder: str, segment: Bounds, file: int, run: Run, wanted: Wanted) -> Found:
    place = _place(file)
    length = run.lines if wanted.as_lines else run.end - run.start
    path = segment_path(folder, segment[0])
    if length > SHORT_BYTES:
        return Found(run, place, b"", Lines(path, place, segment, run) if wanted.as_lines else Frames(path, place, run))
    if wanted.as_lines:
        return Found(run, place, reading.records(file, segment, run.first, run.start, run.next, length, True)[3], None)
    return Found(run, place, os.pread(file, length, run.start), None)


def _place(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def timestamps(folder: str, places: dict[int, tuple[Bounds | None, int]]) -> dict[int, int | None]:
    """For each offset, when the first record from there on was published, in ns since 1970; None: unknown.

    places: the segments that contain the offsets, or follow them, and positions as in find_run(). Runs on a worker
    thread. Records that retention removes meanwhile are unknown.
    """
    return {offset: _timestamp(folder, *places[offset], offset) for offset in sorted(places)}


def offset_at(folder: str, segment: Bounds, time_ns: int) -> int:
    """The first offset of a segment published at or after a time; the end if none.

    Runs on a worker thread. Raises OSError.
    """
    with opened(folder, segment) as file:
        return reading.first_at(file, segment, time_ns)


def _timestamp(folder: str, segment: Bounds | None, position: int, offset: int) -> int | None:
    if segment is None:
        return None
    with suppress(FileNotFoundError), opened(folder, segment) as file:
        return reading.time_of(file, segment, max(offset, segment[0]), position)
    return None


@contextmanager
def opened(folder: str, segment: Bounds) -> Iterator[int]:
    """A descriptor of a segment, for a with block. Raises OSError."""
    # Non-blocking: the name may belong to something other than a file.
    file = os.open(segment_path(folder, segment[0]), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield file
    finally:
        os.close(file)


class Frames(Stream):
    """A part of a segment, unchanged. Without TLS the kernel sends it from the page cache, without a copy here."""

    def __init__(self, path: str, place: tuple[int, int], run: Run) -> None:
        self.length = self.left = run.end - run.start
        self._path = path
        self._place = place
        self._at = run.start

    def send(self, socket: int) -> bytes:
        with _again(self._path, self._place) as file:
            if socket >= 0 and not self._send_file(file, socket):
                return b""
            data = os.pread(file, min(self.left, _READ_AT_ONCE if socket < 0 else _KEPT_BYTES), self._at)
        if self.left and not data:
            raise OSError(errno.EIO, "the segment is shorter than before", self._path)
        self._passed(len(data))
        return data

    def _send_file(self, file: int, socket: int) -> bool:
        """Whether the socket accepts no more; the transport will report why."""
        allowed = _SENT_AT_ONCE
        while allowed and self.left:
            try:
                sent = os.sendfile(socket, file, self._at, min(allowed, self.left))
            except (BlockingIOError, ConnectionError):
                return True
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ENOSYS):
                    return True     # the file system does not support this: the transport sends
                raise
            if not sent:
                raise OSError(errno.EIO, "the segment is shorter than before", self._path)
            allowed -= sent
            self._passed(sent)
        return False

    def _passed(self, sent: int) -> None:
        self._at += sent
        self.left -= sent


class Lines(Stream):
    """Records as lines of JSON."""

    def __init__(self, path: str, place: tuple[int, int], segment: Bounds, run: Run) -> None:
        self.length = self.left = run.lines
        self._path = path
        self._place = place
        self._segment = segment
        self._run = run
        self._offset = run.first
        self._position = run.start

    def send(self, socket: int) -> bytes:
        with _again(self._path, self._place) as file:
            first, next_, position, data = reading.records(file, self._segment, self._offset, self._position,
                                                           self._run.next, _READ_AT_ONCE, True)
        if first != self._offset or not 0 < len(data) <= self.left:
            raise OSError(errno.EIO, "the segment has changed", self._path)
        self._offset, self._position = next_, position
        self.left -= len(data)
        return data


@contextmanager
def _again(path: str, place: tuple[int, int]) -> Iterator[int]:
    """Reopens a file; returns its descriptor. The file is closed while a client does not read."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _place(file) != place:
            raise OSError(errno.ESTALE, "the segment has been replaced", path)
        yield file
    finally:
        os.close(file)
