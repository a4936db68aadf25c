"""Listening sockets: bound or inherited, paused together, removed with their files.

At the limit of open files libuv accepts new clients and closes them at once. To avoid that, accepting stops while a
few descriptors remain: new clients wait in the accept queues, as with nsqd, and connected clients are served.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, TypeAlias

from nsqc.log import Log
from nsqc.net.address import address_text, bind, port_of, prepare, remove

if TYPE_CHECKING:
    from nsqc.net.acceptor import Acceptor
    from nsqc.net.tls_acceptor import TlsAcceptor

SETTLED_S = 1.0  # accepting for this long counts as resumed; at the limit each disconnect lets one client in

Accepting: TypeAlias = "Acceptor | TlsAcceptor"


class Listener:
    """One listening socket, bound by the constructor: an address in use is detected before anything else happens."""

    def __init__(self, name: str, address: str, log: Log, inherited: socket.socket | None = None):
        """Uses the inherited socket if any, otherwise binds the address. Raises OSError or ValueError."""
        self.name = name  # TCP, HTTP or HTTPS
        self._log = log
        self.sock = inherited or bind(address)
        prepare(self.sock)
        # The file of an inherited socket stays: the process that created it owns it.
        self._path = "" if inherited else address
        self._acceptor: Accepting | None = None
        self._listeners: Listeners | None = None
        self.address = address_text(self.sock)
        self.port = port_of(self.sock)  # -1: a unix socket

    async def start(self, acceptor: Accepting, listeners: Listeners) -> None:
        """Starts accepting. Raises OSError."""
        try:
            await acceptor.start()
        except BaseException:
            self.sock.close()
            raise
        self._acceptor = acceptor
        self._listeners = listeners
        listeners.add(acceptor)
        self._log.info("%s: listening on %s", self.name, self.address)

    def close(self) -> None:
        """Stops accepting, and removes a unix socket's file."""
        self._log.info("%s: closing %s", self.name, self.address)
        if self.port < 0:
            remove(self.sock, self._path)
        if self._acceptor is None or self._listeners is None:
            self.sock.close()
        else:
            self._listeners.remove(self._acceptor)
            self._acceptor.close()


class Listeners:
    """All listeners of a daemon, which pause together. ConnectionLimits counts the clients and decides when."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Log):
        self.paused = False
        self._loop = loop
        self._log = log
        self._acceptors: list[Accepting] = []
        self._report: asyncio.TimerHandle | None = None  # due after resume(): logs that accepting has resumed
        self._reported = False  # the pause was logged

    def add(self, acceptor: Accepting) -> None:
        """Adds a listener, which pauses with the others."""
        self._acceptors.append(acceptor)
        if self.paused:
            acceptor.pause()

    def remove(self, acceptor: Accepting) -> None:
        """Removes a closed listener."""
        self._acceptors.remove(acceptor)

    def pause(self, connections: int) -> None:
        """Stops accepting until resume(); connections: the current count, for the log."""
        self.paused = True
        for acceptor in self._acceptors:
            acceptor.pause()
        if self._report is not None:
            self._report.cancel()
            self._report = None
        if not self._reported:
            self._reported = True
            self._log.warn("accepting stops at %d connections: the limit of open files allows no more; "
                           "new clients wait until others disconnect", connections)

    def resume(self) -> None:
        """Starts accepting again."""
        self.paused = False
        for acceptor in self._acceptors:
            acceptor.resume()
        self._report = self._loop.call_later(SETTLED_S, self._report_resumed)

    def stop(self) -> None:
        """Stops logging."""
        if self._report is not None:
            self._report.cancel()

    def _report_resumed(self) -> None:
        self._report = None
        self._reported = False
        self._log.info("accepting resumes: file descriptors are available again")
