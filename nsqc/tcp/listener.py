"""The TCP listener of V2 clients: host:port or the path of a unix socket."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from nsqc.net.accepting import Door, Doors
from nsqc.net.address import address_text, bind, port_of, prepare, remove
from nsqc.tcp.connection import Connection


class Listener:
    """One listening socket. Bound first, so that a taken address is noticed before anything else happens."""

    def __init__(self, address: str, log: Any, inherited: socket.socket | None = None):
        """Takes the inherited socket, else the address. Raises OSError or ValueError where that cannot be had."""
        self._sock = inherited or bind(address)
        prepare(self._sock)
        # The file of an inherited socket stays, for it belongs to who handed it over.
        self._path = "" if inherited else address
        self._log = log
        self._door: Door | None = None
        self.address = address_text(self._sock)
        self.port = port_of(self._sock)  # -1: a unix socket

    async def start(self, loop: asyncio.AbstractEventLoop, hub: Any, doors: Doors) -> None:
        """Accepts connections from now on."""
        self._door = Door(loop, self._sock, lambda: Connection(hub), self._log)
        await self._door.start()
        doors.add(self._door)
        self._log.info("TCP: listening on %s", self.address)

    def close(self) -> None:
        """Accepts no more."""
        if self.port < 0:
            remove(self._sock, self._path)
        if self._door is not None:
            self._door.close()
        else:
            self._sock.close()
        self._log.info("TCP: closing %s", self.address)
