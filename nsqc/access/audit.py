"""The audit log: one JSON line for each call that changes something, and for each refused call.

With its own file it loses no line: a thread writes it, and once too many bytes wait for a failing disk, calls that
change something are refused. Without a file, lines go to the program's log at any log level.
"""

from __future__ import annotations

import os
import threading
import time

import msgspec

from nsqc.log import Log

OFF, CHANGES = "off", "changes"     # levels, besides "refused"
MOST_WAITING = 8 * 1024 * 1024      # bytes of lines not written yet
RETRY_S = 1.0                       # after a failed write
CLOSE_S = 5.0
SHOWN = 512                         # characters of each value: some are chosen by clients


class Line(msgspec.Struct, gc=False):
    """The record of one call."""

    time: str
    user: str       # empty: an unidentified client
    address: str
    call: str
    target: str     # the object of the call: TOPIC, TOPIC/CHANNEL or a query
    result: str


class Audit:
    """Records calls. Thread-safe."""

    def __init__(self, path: str, level: str, log: Log) -> None:
        """path: empty for the program's log. Raises OSError."""
        self._path = path
        self._log = log
        self._encode = msgspec.json.Encoder().encode
        self.wants_changes = level == CHANGES
        self._file = _opened(path) if path else -1
        self._changed = threading.Condition()
        # Under the condition's lock:
        self._waiting: list[bytes] = []
        self._size = 0
        self._missing = 0       # dropped lines about refused calls
        self._reopen = self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def is_full(self) -> bool:
        """Whether calls that change something must be refused."""
        return self._size >= MOST_WAITING

    def record(self, user: str, address: str, call: str, target: str, result: str) -> None:
        """Adds a line."""
        now = time.time()
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1e6):06d}Z"
        line = Line(stamp, user, address, call[:SHOWN], target[:SHOWN], result[:SHOWN])
        if not self._path:
            fields = msgspec.structs.asdict(line)
            del fields["time"]
            self._log.audit(self._encode(line).decode(), fields)
            return
        self._put(self._encode(line) + b"\n")

    def reopen(self) -> None:
        """Reopens the file: the old one has been renamed."""
        with self._changed:
            self._reopen = True
            self._start()
            self._changed.notify_all()

    def close(self) -> None:
        """Waits until everything is written, but not for a hanging disk."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_S)

    def _put(self, data: bytes) -> None:
        with self._changed:
            if self._size >= 2 * MOST_WAITING:
                self._missing += 1
                return
            self._waiting.append(data)
            self._size += len(data)
            self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        if self._thread is None and self._path:
            self._thread = threading.Thread(target=self._write, name="nsqc-audit", daemon=True)
            self._thread.start()

    # ------------------------------------------------------------------ the thread

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._reopen or self._closing)
                if not (self._waiting or self._reopen):
                    return
                data, size = b"".join(self._waiting), self._size
                self._waiting.clear()
                reopen, self._reopen = self._reopen, False
                missing, self._missing = self._missing, 0
            if missing:
                self._log.error("AUDIT: %d refused calls are not recorded, as %s could not be written", missing,
                                self._path)
            # Lines recorded before the signal belong to the old file.
            if not self._written(data):
                return
            if reopen:
                self._open_again()
            with self._changed:
                self._size -= size

    def _written(self, data: bytes) -> bool:
        """Writes all lines, retrying until it succeeds; False: the program ends first."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._file, left):]
            except OSError as error:
                self._log.error("AUDIT: failed to write %s - %s; calls that change something will be refused",
                                self._path, error.strerror)
                with self._changed:
                    if self._changed.wait_for(lambda: self._closing, RETRY_S):
                        return False
                self._open_again()
        return True

    def _open_again(self) -> None:
        try:
            file = _opened(self._path)
        except OSError as error:
            self._log.error("AUDIT: failed to open %s - %s", self._path, error.strerror)
            return
        os.close(self._file)
        self._file = file


def _opened(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
