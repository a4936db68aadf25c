"""Listeners that accept together, or wait together while descriptors are short.

At the limit of open files libuv accepts newcomers and closes them at once. So nobody is accepted who might need the
last descriptors: clients wait in the accept queues, as they do with nsqd, and those that are in are served.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any, Protocol

BACKLOG = 4096
RETRY_S = 1.0
SETTLED_S = 1.0  # accepting for so long counts as going on; at the limit each client that leaves lets one in
# Later Pythons have the file of a unix socket removed with its server, which comes and goes here.
_KEEP_FILE: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}


class Accepting(Protocol):
    """What can be told to accept or to wait."""

    def pause(self) -> None:
        """Accepts nobody until resume()."""

    def resume(self) -> None:
        """Accepts again."""


class Doors:
    """All listeners of a daemon. ConnectionLimits (limits.py) counts the clients and shuts and opens them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Any):
        self._loop = loop
        self._log = log
        self._all: list[Accepting] = []
        self._told: asyncio.TimerHandle | None = None  # runs since they were opened again, until that is said
        self._said = False
        self.shut = False

    def add(self, door: Accepting) -> None:
        """A listener that is to heed this."""
        self._all.append(door)
        if self.shut:
            door.pause()

    def remove(self, door: Accepting) -> None:
        """A listener that is closed."""
        self._all.remove(door)

    def close(self, connections: int) -> None:
        """Nobody is accepted from now on."""
        self.shut = True
        for door in self._all:
            door.pause()
        if self._told is not None:
            self._told.cancel()
            self._told = None
        if not self._said:
            self._said = True
            self._log.warn("accepting stops at %d connections: the limit of open files leaves no room for more; "
                           "clients wait until others leave", connections)

    def open(self) -> None:
        """Clients are accepted again."""
        self.shut = False
        for door in self._all:
            door.resume()
        self._told = self._loop.call_later(SETTLED_S, self._say)

    def stop(self) -> None:
        """Nothing is said any more."""
        if self._told is not None:
            self._told.cancel()

    def _say(self) -> None:
        self._told = None
        self._said = False
        self._log.info("accepting goes on: there are open files to spare again")


class Door:
    """Accepts on a listening socket through the loop's own server, the quickest way to a protocol.

    The server works on a duplicate: closing it stops accepting, and who waits in the accept queue stays there.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, make_protocol: Callable[[], Any],
                 log: Any):
        self._loop = loop
        self._sock = sock
        self._make_protocol = make_protocol
        self._log = log
        self._server: asyncio.AbstractServer | None = None
        self._starting: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._wanted = True
        self._closed = False

    async def start(self) -> None:
        """Accepts from now on. Raises OSError."""
        self._server = await self._serve()

    def pause(self) -> None:
        """Accepts nobody until resume()."""
        self._wanted = False
        self._drop_server()

    def resume(self) -> None:
        """Accepts again."""
        self._wanted = True
        if self._server is None and self._starting is None and not self._closed:
            self._starting = self._loop.create_task(self._resume())

    def close(self) -> None:
        """Accepts no more; who waits is refused."""
        self._closed = True
        self._wanted = False
        if self._retry is not None:
            self._retry.cancel()
        self._drop_server()
        self._sock.close()

    async def _serve(self) -> asyncio.AbstractServer:
        if self._sock.family == socket.AF_UNIX:
            return await self._loop.create_unix_server(self._make_protocol, sock=self._sock.dup(), backlog=BACKLOG,
                                                       **_KEEP_FILE)
        return await self._loop.create_server(self._make_protocol, sock=self._sock.dup(), backlog=BACKLOG)

    async def _resume(self) -> None:
        try:
            server = await self._serve() if self._wanted else None
        except OSError as error:
            self._log.error("accepting cannot go on - %s", error)
            self._retry = self._loop.call_later(RETRY_S, self.resume)
            return
        finally:
            self._starting = None
        self._server = server
        if not self._wanted:
            # It was told to wait again meanwhile.
            self._drop_server()

    def _drop_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
