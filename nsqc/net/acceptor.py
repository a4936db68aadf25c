"""Accepts clients on a listening socket through the loop's own server, the fastest path to a protocol."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

from nsqc.log import Log

ProtocolFactory = Callable[[], Any]  # Any: compiled protocols are not subclasses of asyncio's

BACKLOG = 4096
RETRY_S = 1.0
# Newer Pythons remove a unix socket's file with its server, but this server is closed and recreated.
# Any: keyword arguments that older Pythons lack
_KEEP_FILE: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}


class Acceptor:
    """Accepts on a duplicate of the socket: closing it stops accepting, but clients stay in the accept queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket,
                 make_protocol: ProtocolFactory, log: Log):
        self._loop = loop
        self._sock = sock
        self._make_protocol = make_protocol
        self._log = log
        self._server: asyncio.AbstractServer | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._wanted = True
        self._closed = False

    async def start(self) -> None:
        """Starts accepting. Raises OSError."""
        self._server = await self._serve()

    def pause(self) -> None:
        """Stops accepting until resume()."""
        self._wanted = False
        self._drop_server()

    def resume(self) -> None:
        """Starts accepting again."""
        self._wanted = True
        if self._server is None and self._resuming is None and not self._closed:
            self._resuming = self._loop.create_task(self._resume())

    def close(self) -> None:
        """Stops accepting; clients in the accept queue are refused."""
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
            self._log.error("cannot resume accepting - %s", error)
            self._retry = self._loop.call_later(RETRY_S, self.resume)
            return
        finally:
            self._resuming = None
        self._server = server
        if not self._wanted:
            # Paused again meanwhile.
            self._drop_server()

    def _drop_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
