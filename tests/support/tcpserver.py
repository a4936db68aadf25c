"""A server for tests that handles each connection in a thread."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

HOST = "127.0.0.1"


class TcpServer:
    """Accepts on a free port, with a thread for each connection; subclasses handle connections."""

    def __init__(self, port: int = 0):
        self.door = socket.create_server((HOST, port))
        self.port = self.door.getsockname()[1]
        self.address = f"{HOST}:{self.port}"
        self.guests: list[socket.socket] = []
        self._porter = threading.Thread(target=self._accept, daemon=True)
        self._porter.start()

    def _accept(self) -> None:
        while True:
            try:
                guest, _ = self.door.accept()
            except OSError:
                return
            self.guests.append(guest)
            threading.Thread(target=self._serve, args=(guest,), daemon=True).start()

    def _serve(self, guest: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError, struct.error):
            self.serve(guest)
        with contextlib.suppress(OSError):
            guest.close()

    def serve(self, guest: socket.socket) -> None:
        raise NotImplementedError

    def drop(self) -> None:
        """Ends all connections."""
        guests, self.guests = self.guests, []
        for guest in guests:
            with contextlib.suppress(OSError):
                guest.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.door.shutdown(socket.SHUT_RDWR)
        self._porter.join()  # or it might accept on the next file with that descriptor
        self.door.close()
        self.drop()


class Answering(TcpServer):
    """Reads once, sends the same answer to everybody, and closes; for use in a with statement."""

    def __init__(self, answer: bytes):
        self.answer = answer
        super().__init__()

    def serve(self, guest: socket.socket) -> None:
        guest.recv(4096)
        guest.sendall(self.answer)

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
