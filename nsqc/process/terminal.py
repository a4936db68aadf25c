"""The terminal that the daemon was started in, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select

NAME = "/dev/tty"  # this process's controlling terminal
JUST_S = 5.0  # a SIGHUP this soon after the terminal closed is caused by that


class Terminal:
    """Knows whether the terminal has just closed; there may be no terminal at all.

    SIGHUP means either a closed terminal or a request to read files again, without saying which. For a daemon in the
    background of a terminal closed long ago it means the latter.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._closed_at: float | None = None
        self._terminal = -1
        self._epoll: select.epoll | None = None
        with contextlib.suppress(OSError):
            self._terminal = os.open(NAME, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._epoll = select.epoll()
            # Its end is always reported; input does not matter.
            self._epoll.register(self._terminal, 0)
            loop.add_reader(self._epoll.fileno(), self._ended)

    def has_just_closed(self) -> bool:
        """Whether the terminal closed in the last few seconds."""
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
