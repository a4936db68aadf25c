"""Servers that are not nsqd, or misbehave in ways that a real daemon cannot be made to."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">ii", len(data) + 4, kind) + data


IDENTIFIED = frame(0, b'{"max_rdy_count": 2500}')


def serve(*answers: bytes, hold: float = 0.0) -> str:
    """A server that sends these bytes to one client and closes after hold seconds; returns its address."""
    door = socket.create_server(("127.0.0.1", 0))

    def run():
        guest, _ = door.accept()
        door.close()
        with guest, contextlib.suppress(OSError):     # the client may leave first
            for answer in answers:
                guest.sendall(answer)
            time.sleep(hold)

    threading.Thread(target=run, daemon=True).start()
    return f"127.0.0.1:{door.getsockname()[1]}"


class Proxy:
    """Between a client and a daemon: counts connections, and can hold bytes back or cut them off.

    to_nsqd, to_client: bytes that may still pass; None: unlimited. Further bytes are held, or dropped with lose; with
    cut the connection is closed.
    """

    def __init__(self, port: int):
        self.port = port
        self.to_nsqd: int | None = None
        self.to_client: int | None = None
        self.cut = self.lose = False
        self.connections = 0
        self._open: list[socket.socket] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                guest, _ = self._door.accept()
            except OSError:
                return
            self.connections += 1
            try:
                host = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                guest.close()
                continue
            self._open += [guest, host]
            for one, other, name in ((guest, host, "to_nsqd"), (host, guest, "to_client")):
                threading.Thread(target=self._pass, args=(one, other, name), daemon=True).start()

    def _pass(self, one, other, name):
        try:
            while data := one.recv(1 << 16):
                while data:
                    left = getattr(self, name)
                    now = data if left is None else data[:left]
                    if left is not None:
                        setattr(self, name, left - len(now))
                    other.sendall(now)
                    data = data[len(now):]
                    if data and self.cut:
                        return
                    if data and self.lose:
                        break
                    if data:
                        time.sleep(0.01)
        except OSError:
            pass
        finally:
            for each in (one, other):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Lifts all limits."""
        self.cut = self.lose = False
        self.to_nsqd = self.to_client = None

    def close(self) -> None:
        self._door.close()
        for one in self._open:
            one.close()


class Script:
    """A server that greets and acknowledges the first few publishing commands of all its clients, then goes silent, or
    closes with ends."""

    def __init__(self, acknowledges: int, ends: bool = False):
        self.left = acknowledges
        self.ends = ends
        self._guests: list[socket.socket] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                guest, _ = self._door.accept()
                self._guests.append(guest)
                threading.Thread(target=self._serve, args=(guest,), daemon=True).start()

    def _serve(self, guest):
        received = b""
        with contextlib.suppress(OSError):
            while data := guest.recv(1 << 16):
                received += data
                if b"IDENTIFY\n" in received:
                    guest.sendall(IDENTIFIED)
                    received = b""
                for _ in range(received.count(b"PUB ")):
                    if self.left:
                        self.left -= 1
                        guest.sendall(frame(0, b"OK"))
                    elif self.ends:
                        guest.shutdown(socket.SHUT_RDWR)
                received = b""

    def close(self) -> None:
        self._door.close()
        for guest in self._guests:
            guest.close()
