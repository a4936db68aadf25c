"""Accepts HTTPS clients: each is counted, and shakes hands under the certificates of the moment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from nsqc.net.accepting import BACKLOG
from nsqc.net.limits import ConnectionLimits, handshake_error, host_of

HANDSHAKE_S = 5.0
SHUTDOWN_S = 5.0
ACCEPT_AT_ONCE = 64  # in one turn of the loop
RETRY_S = 1.0  # where the system has no descriptors left


class TlsListener:
    """A listening socket whose clients get their protocol once TLS is in place. Stands in for asyncio's Server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, make_protocol: Callable[[], Any],
                 certificates: Any, limits: ConnectionLimits, log: Any) -> None:
        self._loop = loop
        self._sock = sock
        self._make_protocol = make_protocol
        self._certificates = certificates
        self._limits = limits
        self._log = log
        self._handshakes: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._paused = False

    def start(self) -> None:
        """Accepts from now on."""
        self._sock.listen(BACKLOG)
        self.resume()

    def pause(self) -> None:
        """Accepts nobody until resume()."""
        self._paused = True
        self._loop.remove_reader(self._sock)
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def resume(self) -> None:
        """Accepts again."""
        self._paused = False
        self._loop.add_reader(self._sock, self._accept)

    def close(self) -> None:
        """Accepts no more."""
        self.pause()
        self._sock.close()

    async def settle(self, seconds: float) -> None:
        """Waits for handshakes under way, and gives up those that take longer than that."""
        if self._handshakes:
            await asyncio.wait(list(self._handshakes), timeout=seconds)
        for task in self._handshakes:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            if self._paused:
                return
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._log.error("HTTPS: accept failed - %s", error)
                self.pause()
                self._retry = self._loop.call_later(RETRY_S, self.resume)
                return
            self._admit(sock, host_of(peer))

    def _admit(self, sock: socket.socket, host: str) -> None:
        if not self._limits.enter(host):
            sock.close()
        elif not self._limits.begin_handshake(host):
            self._limits.leave(host)
            sock.close()
        else:
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._shake_hands(sock, host))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, sock: socket.socket, host: str) -> None:
        """The protocol's connection_made is called where this succeeds; there it is counted by itself."""
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol, sock, ssl=self._certificates.context, ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S)
        except (OSError, EOFError) as error:
            self._log.error("HTTPS: TLS handshake error from %s - %s", host or "@", handshake_error(error))
        finally:
            self._limits.end_handshake()
            self._limits.leave(host)
