"""Accepts HTTPS clients: counts each, and performs the handshake with the current certificates."""

from __future__ import annotations

import asyncio
import socket

from nsqc.log import Log
from nsqc.net.acceptor import BACKLOG, ProtocolFactory
from nsqc.net.limits import ConnectionLimits, handshake_error, host_of
from nsqc.net.tls import Certificates

HANDSHAKE_S = 5.0
SHUTDOWN_S = 5.0
ACCEPT_AT_ONCE = 64  # per loop iteration
RETRY_S = 1.0  # when the system has no free descriptors


class TlsAcceptor:
    """Gives clients their protocol once TLS is established. The loop's own server cannot count pending handshakes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket,
                 make_protocol: ProtocolFactory, certificates: Certificates,
                 limits: ConnectionLimits, log: Log) -> None:
        self._loop = loop
        self._sock = sock
        self._make_protocol = make_protocol
        self._certificates = certificates
        self._limits = limits
        self._log = log
        self._handshakes: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._paused = False

    async def start(self) -> None:
        """Starts accepting. Raises OSError."""
        self._sock.listen(BACKLOG)
        self.resume()

    def pause(self) -> None:
        """Stops accepting until resume()."""
        self._paused = True
        self._loop.remove_reader(self._sock)
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def resume(self) -> None:
        """Starts accepting again."""
        self._paused = False
        self._loop.add_reader(self._sock, self._accept)

    def close(self) -> None:
        """Stops accepting."""
        self.pause()
        self._sock.close()

    async def settle(self, seconds: float) -> None:
        """Waits for pending handshakes, and cancels slow ones."""
        if self._handshakes:
            await asyncio.wait(list(self._handshakes), timeout=seconds)
        for handshake in self._handshakes:
            handshake.cancel()

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
            handshake = self._loop.create_task(self._handshake(sock, host))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    async def _handshake(self, sock: socket.socket, host: str) -> None:
        """Counts the client until the handshake ends; on success connection_made() has counted it permanently."""
        succeeded = False
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol, sock, ssl=self._certificates.context, ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S)
            succeeded = True
        except (ConnectionResetError, BrokenPipeError, EOFError) as error:
            # It disconnected during the handshake, as probes do.
            self._log.debug("HTTPS: TLS handshake error from %s - %s", host or "@", handshake_error(error))
        except OSError as error:
            self._log.error("HTTPS: TLS handshake error from %s - %s", host or "@", handshake_error(error))
        finally:
            self._limits.end_handshake(succeeded)
            self._limits.leave(host)
