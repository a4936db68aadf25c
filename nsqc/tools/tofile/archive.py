"""The files of one topic: opens, appends, syncs, rotates and moves them. One thread writes, another syncs meanwhile."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import threading
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from nsqc.store.files import sync_folder
from nsqc.tools.lines import direct_block, lines

if TYPE_CHECKING:
    from nsqc.client.commands import Batch
    from nsqc.tools.lines import Piece


# ====================================================================== growth
# A growing file: large writes bypass the page cache, which would cost more processor time than all else in the tool.

LEAST_DIRECT = 128 << 10    # bytes; less is not worth the two short writes around it
APPENDED = os.O_APPEND      # the flags that can be changed


class Growth:
    """An open file with O_APPEND, for one writing thread; its owner closes the descriptor. size: its size in bytes.

    Every byte is appended once and in order. So the file is always a prefix of its final content, and synced data is
    never rewritten: whole blocks bypass the page cache, the ends of blocks go through it. All raise OSError."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._block = direct_block(descriptor)      # 0: everything goes through the page cache

    def aligned(self, piece: Piece) -> None:
        """Empties a piece for the next write."""
        piece.clear(self.size % self._block if self._block else 0)

    def write(self, text: memoryview) -> None:
        """Writes an aligned piece."""
        if self._block:
            head = -self.size % self._block
            body = (len(text) - head) // self._block * self._block
            if body >= LEAST_DIRECT:
                self._write_all(text[:head])
                text = text[head + self._write_direct(text[head:head + body]):]
        self._write_all(text)

    def copy(self, data: memoryview, piece: Piece) -> None:
        """Writes any memory, through an empty piece if it is large."""
        if not self._block or len(data) < LEAST_DIRECT:
            self._write_all(data)
            return
        while data:
            self.aligned(piece)
            data = data[piece.put(data):]
            with memoryview(piece) as text:
                self.write(text)
        piece.clear(0)

    def _write_all(self, data: memoryview) -> None:
        while data:
            count = os.write(self.descriptor, data)
            self.size += count
            data = data[count:]

    def _write_direct(self, blocks: memoryview) -> int:
        """Returns the bytes written: the rest goes through the page cache, and fails there if the disk is full."""
        count = 0
        try:
            fcntl.fcntl(self.descriptor, fcntl.F_SETFL, APPENDED | os.O_DIRECT)
            try:
                count = os.write(self.descriptor, blocks)
            finally:
                fcntl.fcntl(self.descriptor, fcntl.F_SETFL, APPENDED)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # The file system lacks direct writes, or requires other blocks, or another process appends to the file,
            # too, so the end is elsewhere: not tried again.
            self._block = 0
        self.size += count
        return count


# ====================================================================== naming
# File names, from a format with <TOPIC>, <HOST>, <PID>, <REV> and <DATETIME>.

REV = "<REV>"
# Placeholders; everything else is kept verbatim.
DIRECTIVE = re.compile(r"%[BbmAadHIMSYypZz%]")


class Naming(NamedTuple):
    """format: of the path below a folder; datetime: strftime, local time; host: for <HOST>; suffix: .gz or .zst, or
    empty. numbered: the name has a <REV>, incremented if the name is taken."""

    format: str
    datetime: str
    host: str
    suffix: str
    numbered: bool

    def name(self, topic: str, now: float) -> str:
        """The name at a time (time.time()), with <REV> in it if it is numbered."""
        # A topic may be called .. and must not lead to another folder.
        topic = topic if topic.strip(".") else topic.replace(".", "_")
        name = self.format.replace("<TOPIC>", topic).replace("<HOST>", self.host).replace("<PID>", str(os.getpid()))
        name = name.replace("<DATETIME>", written(self.datetime, now))
        if not self.numbered:
            name = name.replace(REV, "")
        return name if not self.suffix or name.endswith(self.suffix) else name + self.suffix


def written(form: str, now: float) -> str:
    """strftime of the local time, with the directives known to nsq_to_file."""
    local = time.localtime(now)
    return DIRECTIVE.sub(lambda found: time.strftime(found[0], local), form)


def numbered_name(name: str, number: int) -> str:
    """The name with its <REV>."""
    return name.replace(REV, f"-{number:06d}")


def host_identifier(text: str) -> str:
    """The text for <HOST>: the short host name by default."""
    full = socket.gethostname()
    short = full.split(".")[0]
    return text.replace("<SHORT_HOST>", short).replace("<HOSTNAME>", full) if text else short


# ====================================================================== archive

NEWLINE = b"\n"
GZIP = 31               # zlib's number for a gzip header and trailer
LAST_NUMBER = 999_999
PIECE_BYTES = 8 << 20   # compressed, and written, in one piece


class Rules(NamedTuple):
    """rotate_size: bytes before compression, 0: unlimited; rotate_interval: seconds, 0: unlimited. compression: gzip,
    zstd or empty. skip_empty: no file without messages. output, work: folders, the same if files grow in their final
    place."""

    output: str
    work: str
    naming: Naming
    compression: str
    level: int
    rotate_size: int
    rotate_interval: float
    skip_empty: bool

    @property
    def moves(self) -> bool:
        """Whether completed files are moved to another folder."""
        return self.work != self.output

    @property
    def exclusive(self) -> bool:
        """Whether every file is new, instead of appending to an existing one."""
        return bool(self.compression) or self.rotate_interval > 0


class Archive:
    """store(), tick(), close() and mend() run on one thread, sync() on another; all raise OSError. After a failure
    the file is as it was at the last sync. say gets a level (debug, info, warn) and a text. piece: empty between two
    calls of the first thread, so all of its archives share one."""

    def __init__(self, topic: str, rules: Rules, say: Callable[[str, str], None], piece: Piece):
        self.topic = topic
        self._rules, self._say, self._piece = rules, say, piece
        # Held during a sync, and while the open file changes: an error of fsync is reported once, so the two threads
        # must not sync at the same time.
        self._lock = threading.Lock()
        self._epoch = 0             # counts failures: unsynced data of an earlier epoch is gone
        self._failure: OSError | None = None    # of a sync, until the writing thread has cut off the lost data
        self._name = ""             # with <REV>
        self._path = ""             # of the open file
        self._number = 0
        self._opened = 0.0          # time.monotonic()
        self._growth: Growth | None = None  # of the open file
        self._written = 0           # bytes before compression, of the open file, including those in the piece
        self._synced = 0            # synced bytes of the open file
        self._folder_synced = True
        self._present = ("", -1)    # current name by the clock, and its second

    # ------------------------------------------------------------------ one round

    def store(self, batches: Iterable[Batch]) -> int:
        """Writes batches, to as many files as rotation requires; returns the epoch, for sync()."""
        self.mend()
        try:
            for batch in batches:
                self._write(batch)
            self._flush()
        except (OSError, MemoryError):
            self._revert()
            raise
        return self._epoch

    def sync(self, epoch: int) -> None:
        """Syncs the data written by store(); afterwards its messages may be finished."""
        with self._lock:
            if self._failure is not None or epoch != self._epoch:
                raise self._failure or OSError(errno.EIO, "unsynced data was cut off after another failure")
            try:
                self._sync()
            except OSError as error:
                self._failure = error
                raise

    def tick(self) -> None:
        """Closes the file if rotation is due, or opens the next one if empty files are wanted."""
        self.mend()
        try:
            if self._is_due():
                self._close()
            if self._growth is None and not self._rules.skip_empty:
                self._open()
                with self._lock:
                    self._sync()
        except OSError:
            self._revert()
            raise

    def close(self) -> None:
        """Syncs and closes; the next message opens a file again."""
        self.mend()
        try:
            self._close()
        except OSError:
            self._revert()
            raise

    def mend(self) -> None:
        """Cuts off data that a sync failed to store."""
        if self._failure is not None:
            self._revert()

    # ------------------------------------------------------------------ writing

    def _write(self, batch: Batch) -> None:
        offsets = memoryview(batch.offsets).cast("B").cast("i")
        start = 0
        while start < batch.count:
            if self._is_due():
                self._close()
            if self._growth is None:
                self._open()
            stop = self._fitting(offsets, start, batch.count)
            self._written += offsets[stop] - offsets[start] + stop - start
            self._add(batch, start, stop)
            start = stop

    def _add(self, batch: Batch, start: int, stop: int) -> None:
        """Writes messages from start to stop to the open file."""
        growth, piece = self._open_growth, self._piece
        while start < stop:
            was_empty = not len(piece)
            if was_empty:
                growth.aligned(piece)
            row = piece.lines(batch.bodies, batch.offsets, start, stop)
            if row == start and was_empty:      # it does not fit in a piece
                row += 1
                self._put(memoryview(lines(batch.bodies, batch.offsets, start, row, b"", NEWLINE)))
            elif row < stop:
                self._flush()
            start = row

    def _fitting(self, offsets: memoryview[int], start: int, count: int) -> int:
        """The row before which the file exceeds its limit: it accepts messages until it is above."""
        limit = self._rules.rotate_size
        if not limit:
            return count
        left = limit - self._written
        # Lines are a byte longer than bodies.
        row = bisect_right(range(start, count), left, key=lambda at: offsets[at] - offsets[start] + at - start)
        return max(start + row, start + 1)

    @property
    def _open_growth(self) -> Growth:
        assert self._growth is not None
        return self._growth

    def _flush(self) -> None:
        """Writes the piece."""
        if not len(self._piece):
            return
        with memoryview(self._piece) as text:
            if not self._rules.compression:
                with self._named():
                    self._open_growth.write(text)
                packed = b""
            else:
                packed = self._packed(text)
        self._piece.clear(0)
        if packed:
            with self._named():
                self._open_growth.copy(memoryview(packed), self._piece)

    def _put(self, text: memoryview) -> None:
        """Writes a message too large for a piece, while that is empty."""
        self._piece.clear(0)
        with self._named():
            self._open_growth.copy(memoryview(self._packed(text)) if self._rules.compression else text, self._piece)

    def _packed(self, text: memoryview) -> bytes:
        """Ends a gzip member or zstd frame: synced data can be unpacked regardless of later data."""
        if self._rules.compression == "gzip":
            return zlib.compress(text, self._rules.level, GZIP)
        import cramjam

        return bytes(cramjam.zstd.compress(text, self._rules.level))

    def _sync(self) -> None:
        """With the lock held."""
        if self._growth is None:
            return
        size = self._growth.size        # data written from here on is for the next sync
        if size == self._synced and self._folder_synced:
            return
        with self._named():
            os.fsync(self._growth.descriptor)
        if not self._folder_synced:
            sync_folder(os.path.dirname(self._path))
            self._folder_synced = True
        self._synced = size

    def _revert(self) -> None:
        """After a failure: cuts off unsynced data, because its messages are delivered again, and closes."""
        with self._lock:
            self._failure = None
            self._epoch += 1
            self._piece.clear(0)
            growth, self._growth = self._growth, None
            if growth is None:
                return
            with contextlib.suppress(OSError):
                os.ftruncate(growth.descriptor, self._synced)
            with contextlib.suppress(OSError):
                os.close(growth.descriptor)
        if not self._synced:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        else:
            if self._rules.moves:
                with contextlib.suppress(OSError):
                    self._move()
            self._count_up()

    # ------------------------------------------------------------------ opening

    def _is_due(self) -> bool:
        """Whether the open file must be closed."""
        if self._growth is None:
            return False
        name = self._name_now()
        age = time.monotonic() - self._opened
        if name != self._name:
            self._say("info", f"new filename {name}, rotating...")
        elif 0 < self._rules.rotate_interval < age:
            self._say("info", f"{age:.2f}s since last open, rotating...")
        elif 0 < self._rules.rotate_size < self._written:
            most = self._rules.rotate_size
            self._say("info", f"{self._path} currently {self._written} bytes (> {most}), rotating...")
        else:
            return False
        return True

    def _name_now(self) -> str:
        """The name by the clock, computed once a second."""
        now = time.time()
        if self._present[1] != int(now):
            self._present = (self._rules.naming.name(self.topic, now), int(now))
        return self._present[0]

    def _open(self) -> None:
        with self._lock:
            name = self._name_now()
            if name != self._name:
                self._name, self._number = name, 0
            while not self._open_number():
                if not self._rules.naming.numbered or self._number >= LAST_NUMBER:
                    raise FileExistsError(errno.EEXIST, "no unused name for another file", self._path)
                self._number += 1

    def _open_number(self) -> bool:
        """Opens the file with the current number; False if that name is taken."""
        name = numbered_name(self._name, self._number)
        path = os.path.join(self._rules.work, name)
        self._path = path
        if self._rules.moves and os.path.lexists(os.path.join(self._rules.output, name)):
            self._say("warn", f"output file already exists: {os.path.join(self._rules.output, name)}")
            return False
        os.makedirs(os.path.dirname(path), 0o770, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_EXCL if self._rules.exclusive else 0)
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileExistsError:
            self._say("warn", f"working file already exists: {path}")
            return False
        growth = Growth(descriptor)
        size = growth.size
        if 0 < self._rules.rotate_size < size:
            os.close(descriptor)
            return False
        self._say("info", f"opening {path}")
        self._growth, self._opened = growth, time.monotonic()
        self._written = self._synced = size
        self._folder_synced = size > 0
        if size and os.pread(descriptor, 1, size - 1) != NEWLINE:
            # A kill has cut off the last line: the next message must not be appended to it.
            self._written += 1
            with self._named():
                growth.write(memoryview(NEWLINE))
        return True

    def _close(self) -> None:
        if self._growth is None:
            return
        self._flush()
        with self._lock:
            if self._failure is not None:
                raise self._failure     # a success of this sync must not hide the data lost by that one
            self._sync()
            growth, self._growth = self._growth, None
            os.close(growth.descriptor)
        if self._rules.moves:
            self._move()
        self._count_up()

    def _count_up(self) -> None:
        """Gives the next file another name, if this one cannot be appended to."""
        self._number += 1 if self._rules.exclusive or self._rules.moves else 0

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Adds the file name to errors of system calls."""
        try:
            yield
        except OSError as error:
            error.filename = self._path
            raise

    def _move(self) -> None:
        """Links the completed file to its final place, without overwriting, and unlinks it."""
        while True:
            name = numbered_name(self._name, self._number)
            final = os.path.join(self._rules.output, name)
            os.makedirs(os.path.dirname(final), 0o770, exist_ok=True)
            try:
                os.link(self._path, final)
                break
            except FileExistsError:
                self._say("warn", f"destination file already exists: {final}")
                self._number += 1
        self._say("info", f"moving finished file {self._path} to {final}")
        sync_folder(os.path.dirname(final))
        os.unlink(self._path)
