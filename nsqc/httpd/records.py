"""Records of a log for clients: found on a worker thread, and sent as frames that lie in the file or as lines of
JSON."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from nsqc.store.log import reading
from nsqc.store.log.names import Bounds, segment_path
from nsqc.store.log.reading import Run

# A shorter body is read with the search for it; a longer one is sent in pieces.
SHORT_BYTES = 64 * 1024
# What one call of send() passes to a socket at most, and to a transport: there it may stay as long as nobody reads.
_SENT_AT_ONCE = 4 * 1024 * 1024
_KEPT_BYTES = 16 * 1024
_READ_AT_ONCE = 64 * 1024
# What one call checks, some milliseconds: others have the thread before a longer range goes on.
_CHECKED_AT_ONCE = 4 * 1024 * 1024
_CHECKED_LINES_AT_ONCE = 1024 * 1024


class Wanted(NamedTuple):
    """What a client asked for, from an offset on."""

    max_messages: int
    max_bytes: int      # at least one record, or frame, whatever its size
    as_lines: bool


class Found:
    """Records that a client asked for: a short body, or where it lies."""

    __slots__ = ("body", "place", "run", "stream")

    def __init__(self, run: Run, place: tuple[int, int], body: bytes, stream: Frames | Lines | None) -> None:
        self.run = run
        self.place = place          # device and inode: a file of that name may be another topic's by now
        self.body = body
        self.stream = stream


def find(folder: str, segment: Bounds, offset: int, position: int, wanted: Wanted) -> Found:
    """The first run of valid frames of a segment from an offset on, or its beginning: see longer(). position: see
    find_run(). Runs on a worker thread. Raises OSError."""
    file = opened(folder, segment)
    try:
        run = reading.find_run(file, segment, max(offset, segment[0]), position, wanted.max_messages,
                               min(wanted.max_bytes, _at_once(wanted)), wanted.as_lines)
        return _found(folder, segment, file, run, wanted)
    finally:
        os.close(file)


def is_part(segment: Bounds, run: Run, wanted: Wanted) -> bool:
    """Whether longer() may add to what find() has found."""
    return (_at_once(wanted) < wanted.max_bytes and run.first < run.next < segment[1]
            and run.next - run.first < wanted.max_messages and run.end - run.start < wanted.max_bytes)


def longer(folder: str, segment: Bounds, found: Found, wanted: Wanted) -> Found | None:
    """The same run with some more of it; None: there is no more. Runs on a worker thread. Raises OSError."""
    before = found.run
    file = opened(folder, segment)
    try:
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
    finally:
        os.close(file)


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

    places: the segments that have the offsets, or follow them, and positions as of find_run(). Runs on a worker
    thread. What retention removes meanwhile is unknown.
    """
    return {offset: _timestamp(folder, *places[offset], offset) for offset in sorted(places)}


def offset_at(folder: str, segment: Bounds, time_ns: int) -> int:
    """The first offset of a segment whose record was published at a time or after it; the end, if there is none.

    Runs on a worker thread. Raises OSError.
    """
    file = opened(folder, segment)
    try:
        return reading.first_at(file, segment, time_ns)
    finally:
        os.close(file)


def _timestamp(folder: str, segment: Bounds | None, position: int, offset: int) -> int | None:
    if segment is None:
        return None
    try:
        file = opened(folder, segment)
    except FileNotFoundError:
        return None
    try:
        return reading.time_of(file, segment, max(offset, segment[0]), position)
    finally:
        os.close(file)


def opened(folder: str, segment: Bounds) -> int:
    """A descriptor of a segment, the caller's. Raises OSError."""
    # Not blocking: something other than a file may have that name.
    return os.open(segment_path(folder, segment[0]), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


class Frames:
    """A part of a segment, as it is. Without TLS the kernel sends it from the page cache: nothing is copied here."""

    patience_s = None

    def __init__(self, path: str, place: tuple[int, int], run: Run) -> None:
        self.length = self.left = run.end - run.start
        self._path = path
        self._place = place
        self._at = run.start

    @property
    def in_memory(self) -> int:
        """See Stream."""
        return 0        # a piece, while it is sent

    def send(self, socket: int) -> bytes:
        """See Stream."""
        file = _again(self._path, self._place)
        try:
            if socket >= 0 and not self._send_file(file, socket):
                return b""
            data = os.pread(file, min(self.left, _READ_AT_ONCE if socket < 0 else _KEPT_BYTES), self._at)
        finally:
            os.close(file)
        if self.left and not data:
            raise OSError(errno.EIO, "it is shorter than it was", self._path)
        self._passed(len(data))
        return data

    def _send_file(self, file: int, socket: int) -> bool:
        """Whether the socket takes no more; the transport will find out why."""
        allowed = _SENT_AT_ONCE
        while allowed and self.left:
            try:
                sent = os.sendfile(socket, file, self._at, min(allowed, self.left))
            except (BlockingIOError, ConnectionError):
                return True
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ENOSYS):
                    return True     # the file system cannot: the transport has to do
                raise
            if not sent:
                raise OSError(errno.EIO, "it is shorter than it was", self._path)
            allowed -= sent
            self._passed(sent)
        return False

    def _passed(self, sent: int) -> None:
        self._at += sent
        self.left -= sent


class Lines:
    """Records as lines of JSON."""

    patience_s = None

    def __init__(self, path: str, place: tuple[int, int], segment: Bounds, run: Run) -> None:
        self.length = self.left = run.lines
        self._path = path
        self._place = place
        self._segment = segment
        self._run = run
        self._offset = run.first
        self._position = run.start

    @property
    def in_memory(self) -> int:
        """See Stream."""
        return 0        # a piece, while it is sent

    def send(self, socket: int) -> bytes:
        """See Stream."""
        file = _again(self._path, self._place)
        try:
            first, next_, position, data = reading.records(file, self._segment, self._offset, self._position,
                                                           self._run.next, _READ_AT_ONCE, True)
        finally:
            os.close(file)
        if first != self._offset or not 0 < len(data) <= self.left:
            raise OSError(errno.EIO, "it is not what it was", self._path)
        self._offset, self._position = next_, position
        self.left -= len(data)
        return data


def _again(path: str, place: tuple[int, int]) -> int:
    """Opens a file that was open before; its descriptor. It is not kept open while a client does not read."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if _place(file) != place:
        os.close(file)
        raise OSError(errno.ESTALE, "it has been replaced", path)
    return file
