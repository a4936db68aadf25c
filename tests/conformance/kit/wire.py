"""Connections to the server: bytes out, frames in."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any

from kit.base import HEARTBEAT, LARGEST_FRAME, Failure
from kit.data import shown
from kit.tls import TlsLayer


class Wire:
    """A connection to the server under test, with its optional layers."""

    def __init__(self, name: str, sock: socket.socket, heartbeats: str):
        self.name, self.sock, self.heartbeats = name, sock, heartbeats
        self.layers: list[Any] = []  # nearest to the socket first
        self.shaking: TlsLayer | None = None
        self.inbox = bytearray()
        self.closed = self.closed_told = False
        sock.settimeout(10)

    def receive(self) -> None:
        """Read all available bytes from the socket; called when it is readable."""
        try:
            data = self.sock.recv(1 << 16)
        except TimeoutError:
            return
        except OSError:
            data = b""
        if data:
            self.absorb(data)
        else:
            self.closed = True

    def absorb(self, data: bytes) -> None:
        if self.shaking:
            self.shaking.incoming.write(data)
            return
        for layer in self.layers:
            data = layer.decode(data)
            if getattr(layer, "broken", False):
                self.closed = True
        self.inbox += data

    def transmit(self, data: bytes) -> None:
        for layer in reversed(self.layers):
            data = layer.encode(data)
        with contextlib.suppress(OSError):  # a closed peer shows up when reading
            self.sock.sendall(data)

    def add_layer(self, layer: Any) -> None:
        """From here on every byte passes the layer, early arrivals included."""
        early, self.inbox = bytes(self.inbox), bytearray()
        self.layers.append(layer)
        self.inbox += layer.decode(early)

    def frame(self) -> tuple[int, bytes] | None:
        """The next whole frame, heartbeats answered on the way."""
        while len(self.inbox) >= 8:
            size, kind = struct.unpack_from(">ii", self.inbox)
            if not 4 <= size <= LARGEST_FRAME:
                raise Failure(f"{self.name}: not a frame: {shown(bytes(self.inbox[:40]))}")
            if len(self.inbox) < 4 + size:
                break
            data = bytes(self.inbox[8 : 4 + size])
            del self.inbox[: 4 + size]
            if data != HEARTBEAT or self.heartbeats == "show":
                return kind, data
            self.transmit(b"NOP\n")
        return None

    def next_is_heartbeat(self) -> bool:
        return self.heartbeats == "answer" and self.inbox[8:19] == HEARTBEAT

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.close()


def connect(target: str) -> socket.socket:
    """Connect to host:port, or to a unix socket given as a path."""
    host, _, port = target.rpartition(":")
    if port.isdigit():
        sock = socket.create_connection((host, int(port)), timeout=5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(5)
    sock.connect(target)
    return sock
