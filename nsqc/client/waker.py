"""Wakes a thread that waits in a poll or a selector."""

from __future__ import annotations

import socket
from contextlib import suppress


class Waker:
    """fileno() becomes readable by wake(), until calm()."""

    def __init__(self) -> None:
        # Not a pipe: a closed socket refuses a late wake(), a closed descriptor may be another file by then.
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._is_woken = False

    def fileno(self) -> int:
        """For a poll or a selector."""
        return self._read.fileno()

    def wake(self) -> None:
        """Thread-safe; callable from signal handlers."""
        with suppress(OSError):     # it is full, and so readable, or closed
            self._write.send(b".")
        self._is_woken = True       # after the byte, which a calm() in between would miss otherwise

    def calm(self) -> None:
        """Drains the bytes written by wake(), if there are any: costs no system call otherwise."""
        if self._is_woken:
            self._is_woken = False
            with suppress(OSError):
                self._read.recv(4096)

    def close(self) -> None:
        """Idempotent; later calls of wake() do nothing."""
        self._read.close()
        self._write.close()

    def __del__(self) -> None:
        if hasattr(self, "_write"):
            self.close()
