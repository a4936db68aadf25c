"""The terminal in which the daemon was started, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select

NAME = "/dev/tty"  # whichever terminal this process belongs to
JUST_S = 5.0  # a SIGHUP this soon after the end of the terminal means that end


class Terminal:
    """Knows whether the terminal has just been closed; there may have been none from the start.

    SIGHUP means that the terminal has been closed, or that files have to be read again, without saying which. To a
    daemon left in the background of a terminal closed long ago it still means the second.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._closed_at: float | None = None
        self._terminal = -1
        self._epoll: select.epoll | None = None
        with contextlib.suppress(OSError):
            self._terminal = os.open(NAME, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._epoll = select.epoll()
            # Its end is always reported; input is of no interest.
            self._epoll.register(self._terminal, 0)
            loop.add_reader(self._epoll.fileno(), self._ended)

    def has_just_closed(self) -> bool:
        """Whether the terminal was closed in the last few seconds."""
        if self._epoll is not None and self._epoll.poll(0):
            self._ended()
        return self._closed_at is not None and self._loop.time() - self._closed_at < JUST_S

    def close(self) -> None:
        """Stops watching."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def _ended(self) -> None:
        self._closed_at = self._loop.time()
        self.close()
