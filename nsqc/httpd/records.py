"""Records of a log for clients: found on a worker thread, and sent as they lie in the file or as lines of JSON."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

from nsqc.store.log import files, jsonlines, spans
from nsqc.store.log.files import Bounds
from nsqc.store.log.names import segment_path
from nsqc.store.log.spans import Sound

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
    max_bytes: int      # at least one record, whatever its size
    as_lines: bool


class Found:
    """Records that a client asked for: a short body, or where it lies."""

    __slots__ = ("body", "place", "sound", "stream")

    def __init__(self, sound: Sound, place: tuple[int, int], body: bytes, stream: Records | Lines | None) -> None:
        self.sound = sound
        self.place = place          # device and inode: a file of that name may be another topic's by now
        self.body = body
        self.stream = stream


def find(folder: str, segment: Bounds, offset: int, wanted: Wanted) -> Found:
    """The first run of intact records of a segment from an offset on, or its beginning: see longer(). Runs on a worker
    thread. Raises OSError."""
    data, index = opened(folder, segment)
    try:
        sound = spans.sound(data, index, segment, max(offset, segment[0]), wanted.max_messages,
                            min(wanted.max_bytes, _at_once(wanted)), wanted.as_lines)
        return _found(folder, segment, data, sound, wanted)
    finally:
        os.close(data)
        os.close(index)


def is_part(segment: Bounds, sound: Sound, wanted: Wanted) -> bool:
    """Whether longer() may add to what find() has found."""
    return (_at_once(wanted) < wanted.max_bytes and sound.first < sound.next < segment[1]
            and sound.next - sound.first < wanted.max_messages and sound.end - sound.start < wanted.max_bytes)


def longer(folder: str, segment: Bounds, found: Found, wanted: Wanted) -> Found | None:
    """The same run with some more of it; None: there is no more. Runs on a worker thread. Raises OSError."""
    before = found.sound
    data, index = opened(folder, segment)
    try:
        if _place(data) != found.place:
            return None
        more = spans.sound(data, index, segment, before.next, wanted.max_messages - (before.next - before.first),
                           min(wanted.max_bytes - (before.end - before.start), _at_once(wanted)), wanted.as_lines)
        if (more.damaged or not more.first == before.next < more.next or more.start != before.end
                or more.end - before.start > wanted.max_bytes):
            return None
        sound = before._replace(next=more.next, end=more.end, lines=before.lines + more.lines)
        return _found(folder, segment, data, sound, wanted)
    finally:
        os.close(data)
        os.close(index)


def _at_once(wanted: Wanted) -> int:
    return _CHECKED_LINES_AT_ONCE if wanted.as_lines else _CHECKED_AT_ONCE


def _found(folder: str, segment: Bounds, data: int, sound: Sound, wanted: Wanted) -> Found:
    place = _place(data)
    length = sound.lines if wanted.as_lines else sound.end - sound.start
    if length > SHORT_BYTES:
        kind = Lines if wanted.as_lines else Records
        return Found(sound, place, b"", kind(segment_path(folder, segment[0], "dat"), place, sound, length))
    if wanted.as_lines:
        return Found(sound, place, jsonlines.lines(data, sound.first, sound.start, sound.end, length)[0], None)
    return Found(sound, place, os.pread(data, length, sound.start), None)


def _place(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def timestamps(folder: str, places: dict[int, Bounds | None]) -> dict[int, int | None]:
    """For each offset, when the first intact record from there on was published, in ns since 1970; None: unknown.

    places: the segments that have the offsets, or follow them. Runs on a worker thread. What retention removes
    meanwhile is unknown.
    """
    return {offset: _timestamp(folder, places[offset], offset) for offset in sorted(places)}


def offset_at(folder: str, segments: Sequence[Bounds], time_ns: int) -> int:
    """The first offset whose record was published at a time or after it; the end, if there is none.

    Runs on a worker thread. Raises OSError.
    """
    # By the index, which has times only roughly, or none: it may be a few records early, or at a segment that ends
    # before the time.
    offset = files.offset_at(folder, segments, time_ns)
    while (segment := files.segment_of(segments, offset)) is not None:
        data, index = opened(folder, segment)
        try:
            offset = spans.not_before(data, index, segment, max(offset, segment[0]), time_ns)
        finally:
            os.close(data)
            os.close(index)
        if offset < segment[1]:
            break
        offset = files.offset_at(folder, segments, time_ns, offset)
    return offset


def _timestamp(folder: str, segment: Bounds | None, offset: int) -> int | None:
    if segment is None:
        return None
    try:
        data, index = opened(folder, segment)
    except FileNotFoundError:
        return None
    try:
        return spans.timestamp(data, index, segment, max(offset, segment[0]))
    finally:
        os.close(data)
        os.close(index)


def opened(folder: str, segment: Bounds) -> tuple[int, int]:
    """Descriptors of a segment and of its index, the caller's. An index that somebody has removed is as if empty.
    Raises OSError."""
    data = _opened(segment_path(folder, segment[0], "dat"))
    try:
        try:
            return data, _opened(segment_path(folder, segment[0], "idx"))
        except FileNotFoundError:
            return data, _opened(os.devnull)
    except OSError:
        os.close(data)
        raise


def _opened(path: str) -> int:
    # Not blocking: something other than a file may have that name.
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


class Records:
    """A part of a segment, as it is. Without TLS the kernel sends it from the page cache: nothing is copied here."""

    patience_s = None

    def __init__(self, path: str, place: tuple[int, int], sound: Sound, length: int) -> None:
        self.length = self.left = length
        self._path = path
        self._place = place
        self._at = sound.start

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

    def __init__(self, path: str, place: tuple[int, int], sound: Sound, length: int) -> None:
        self.length = self.left = length
        self._path = path
        self._place = place
        self._offset = sound.first
        self._at = sound.start
        self._end = sound.end

    @property
    def in_memory(self) -> int:
        """See Stream."""
        return 0        # a piece, while it is sent

    def send(self, socket: int) -> bytes:
        """See Stream."""
        file = _again(self._path, self._place)
        try:
            data, self._offset, self._at = jsonlines.lines(file, self._offset, self._at, self._end, _READ_AT_ONCE)
        finally:
            os.close(file)
        if not 0 < len(data) <= self.left:
            raise OSError(errno.EIO, "it is not what it was", self._path)
        self.left -= len(data)
        return data


def _again(path: str, place: tuple[int, int]) -> int:
    """Opens a file that was open before; its descriptor. It is not kept open while a client does not read."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if _place(file) != place:
        os.close(file)
        raise OSError(errno.ESTALE, "it has been replaced", path)
    return file
