"""Non-blocking stdout: its reader may be slow, or read nothing for hours."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat

from nsqc.tools.output import STDOUT, PipeClosed

PIPE_BYTES = 4096       # a pipe that poll calls writable takes this much without blocking


class Stdout:
    """Bytes queued for stdout, in order. Regular files are written at once; pipes and terminals are reopened in
    non-blocking mode, because that flag is shared with other processes. Raises OSError."""

    def __init__(self) -> None:
        mode = os.fstat(STDOUT).st_mode
        if fcntl.fcntl(STDOUT, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))    # the process was started without stdout
        self._waiting: list[memoryview] = []
        self.unwritten = 0      # bytes
        self._is_file = stat.S_ISREG(mode)
        self._descriptor, self._most = STDOUT, 1 << 30
        if not self._is_file:
            try:
                self._descriptor = os.open(f"/proc/self/fd/{STDOUT}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            except OSError:
                self._most = PIPE_BYTES     # a socket, or another user's file: small writes do not block

    def put(self, data: bytes) -> None:
        """Queues bytes, and writes as much as stdout accepts. Raises PipeClosed, OSError."""
        self._waiting.append(memoryview(data))
        self.unwritten += len(data)
        if len(self._waiting) == 1:
            self.flush()

    def flush(self) -> bool:
        """Writes as much as stdout accepts now; returns whether all is written. Raises PipeClosed, OSError."""
        try:
            while self._waiting:
                piece = self._waiting[0]
                if self._most == PIPE_BYTES and not self._is_writable():
                    return False
                count = os.write(self._descriptor, piece[:self._most])
                self.unwritten -= count
                if count == len(piece):
                    del self._waiting[0]
                else:
                    self._waiting[0] = piece[count:]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            raise PipeClosed from None
        return True

    def check(self) -> None:
        """Raises PipeClosed if the reader has gone. A poll reports that even without requested events."""
        if not self._is_file:
            poll = select.poll()
            poll.register(self._descriptor, 0)
            if poll.poll(0):
                raise PipeClosed

    def _is_writable(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(0))

    def fileno(self) -> int:
        """For a poll."""
        return self._descriptor
