"""Cuts files, or standard input, into parcels; nothing blocks, except reading a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from nsqc.tools.cut import cut
from nsqc.tools.errors import ToolError
from nsqc.tools.parcel import Parcel, packed

STDIN = 0
READ_BYTES = 1 << 20
BATCH_BYTES = 512 * 1024
BATCH_ROWS = 20_000


class Source:
    """The concatenated bytes of several files; - and no file at all are standard input. Raises OSError."""

    def __init__(self, files: Sequence[str]):
        self._names = list(files) or ["-"]
        self._at = -1
        self.descriptor = -1        # current input; -1 at the end
        self.name = ""
        self.is_file = False        # reading it does not block
        self.done = 0               # bytes
        self.total = 0              # bytes; 0 if unknown
        sizes = [size_of(name) for name in self._names]
        self.total = sum(sizes) if all(size >= 0 for size in sizes) else 0
        self.next()

    def next(self) -> None:
        """Opens the next file. Raises OSError."""
        self.close()
        self._at += 1
        if self._at < len(self._names):
            self.name = self._names[self._at]
            self.descriptor = STDIN if self.name == "-" else os.open(self.name, os.O_RDONLY | os.O_CLOEXEC)
            mode = os.fstat(self.descriptor).st_mode
            self.is_file = stat.S_ISREG(mode) or stat.S_ISBLK(mode)

    def read_into(self, room: memoryview) -> int:
        """Reads; returns the byte count; 0 at the end of a file. Raises OSError, ToolError."""
        try:
            count = os.readv(self.descriptor, [room])
        except IsADirectoryError:
            raise ToolError(f"{self.name}: is a folder") from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, "stdin" if self.name == "-" else self.name) from None
        self.done += count
        return count

    def close(self) -> None:
        """Closes the file."""
        if self.descriptor > STDIN:
            os.close(self.descriptor)
        self.descriptor = -1


def size_of(name: str) -> int:
    """A file's size in bytes; -1 if it has none. Raises OSError."""
    status = os.fstat(STDIN) if name == "-" else os.stat(name)
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


class Cutter:
    """Cuts bytes into parcels. refuse is called with the size of each oversized line. delay_ms: above 0 for DPUBs."""

    def __init__(self, source: Source, topic: bytes, delimiter: int, delay_ms: int, max_message: int,
                 refuse: Callable[[int], None]):
        self._source, self._topic, self._delimiter, self._max = source, topic, delimiter, max_message
        self._prefix = b"" if delay_ms else b"MPUB %b\n" % topic
        self._head = b"DPUB %b %d\n" % (topic, delay_ms) if delay_ms else b""
        self._refuse = refuse
        self._buffer = bytearray(2 * READ_BYTES)
        self._begin = self._end = 0     # of the bytes read and not published yet
        self._skipping = 0              # bytes of an oversized line seen so far
        self._dry = True                # no complete line is left
        self.is_through = False

    @property
    def needs_input(self) -> bool:
        """Whether no complete line is available for a parcel."""
        return self._dry and not self.is_through

    def fill(self) -> None:
        """Reads once, blocking if no data is available. Raises OSError, ToolError."""
        self._make_room()
        with memoryview(self._buffer) as view, view[self._end:-1] as room:
            count = self._source.read_into(room)
        self._end += count
        self._dry = False
        if not count:
            self._end_of_file()

    def _make_room(self) -> None:
        if self._begin:
            rest = self._buffer[self._begin:self._end]
            self._buffer[:len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        if len(self._buffer) - self._end <= READ_BYTES:
            self._buffer.extend(bytes(len(self._buffer)))

    def _end_of_file(self) -> None:
        """Adds a delimiter to a last line without one."""
        if self._skipping:
            self._refuse(self._skipping + self._end - self._begin)
            self._skipping, self._begin = 0, self._end
        elif self._end > self._begin:
            self._buffer[self._end] = self._delimiter
            self._end += 1
        self._source.next()

    def parcel(self, most: int) -> Parcel | None:
        """The next parcel, up to this many messages; None if more must be read first."""
        while True:
            if self._skipping and not self._skip():
                return None
            command, count, self._begin, too_large = cut(
                self._prefix, self._head, self._buffer, self._begin, self._end, self._delimiter,
                min(most, BATCH_ROWS), BATCH_BYTES, self._max)
            if count:
                return Parcel(self._topic, command, count, is_deferred=not self._prefix)
            if not too_large:
                self._dry = True
                self.is_through = self._source.descriptor < 0
                return None
            self._skipping = 0
            if not self._skip():
                return None

    def _skip(self) -> bool:
        """Skips an oversized line; returns whether its end was found."""
        at = self._buffer.find(self._delimiter, self._begin, self._end)
        if at < 0:
            self._skipping += self._end - self._begin
            self._begin = self._end
            self._dry = True
            return False
        self._refuse(self._skipping + at - self._begin)
        self._begin, self._skipping = at + 1, 0
        return True


class Whole:
    """The same interface, with each file as one message."""

    def __init__(self, source: Source, topic: bytes, delay_ms: int, max_message: int, refuse: Callable[[int], None]):
        self._source, self._topic, self._max, self._refuse = source, topic, max_message, refuse
        self._line = b"DPUB %b %d\n" % (topic, delay_ms) if delay_ms else b"MPUB %b\n" % topic
        self._is_deferred = delay_ms > 0
        self._body = bytearray()
        self._size = 0          # bytes read so far, including those of oversized messages that are dropped
        self._ready = False
        self.is_through = False
        self._room = bytearray(READ_BYTES)

    @property
    def needs_input(self) -> bool:
        """Whether the message is incomplete."""
        return not self._ready and not self.is_through

    def fill(self) -> None:
        """Reads once. Raises OSError, ToolError."""
        with memoryview(self._room) as room:
            count = self._source.read_into(room)
        self._size += count
        if self._size <= self._max:
            self._body += self._room[:count]
        elif self._body:
            self._body.clear()
        if not count:
            self._ready = True
            self._source.next()

    def parcel(self, most: int) -> Parcel | None:
        """The message, once it is complete; empty files are skipped."""
        if not self._ready:
            return None
        size, body = self._size, bytes(self._body)
        self._body.clear()
        self._size, self._ready = 0, False
        self.is_through = self._source.descriptor < 0
        if size > self._max:
            self._refuse(size)
            return None
        return packed(self._topic, self._line, [body], self._is_deferred) if size else None
