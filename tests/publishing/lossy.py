"""A proxy that loses answers: the publish is stored, and the publisher does not know."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Lossy:
    """Listens on a port and forwards everything to an nsqd, except for the first answers after the greeting: each of
    these ends its connection instead."""

    def __init__(self, port: int, losses: int):
        self.left = losses
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._up, args=(client, server), daemon=True).start()
            threading.Thread(target=self._down, args=(client, server), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        greeted = False
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if greeted and self.left:
                    self.left -= 1
                    break
                greeted = True
                client.sendall(data)
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accepts no more."""
        self._listener.close()
