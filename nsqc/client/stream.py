"""A socket's bytes in both directions: TLS and a codec over it are put on later, and nobody above notices.

Blocking calls take a deadline (time.monotonic()), the others never wait. Errors are OSError, and CodecError for a
stream that cannot be decoded.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any

from nsqc.client.address import is_path, split_address
from nsqc.client.inflow import Inflow
from nsqc.wire.codec import Codec

READ_BYTES = 256 * 1024


class Stream:
    """A connected TCP or unix socket."""

    def __init__(self, address: str, timeout: float):
        self._socket = dial(address, timeout)
        self._codec: Codec | None = None
        self._more = False      # the codec may have more to give without another read
        self._unsent = b""      # encoded, and not taken by the socket yet

    # ------------------------------------------------------------------ upgrades

    def secure(self, context: ssl.SSLContext, server_name: str, deadline: float) -> None:
        """TLS from here on."""
        self._socket.settimeout(left(deadline))
        self._socket = context.wrap_socket(self._socket, server_hostname=server_name, suppress_ragged_eofs=True)

    def compress(self, codec: Codec) -> None:
        """Deflate or snappy from here on, within TLS."""
        self._codec = codec

    # ------------------------------------------------------------------ in

    def receive(self, inflow: Inflow, deadline: float | None) -> int:
        """Feeds what has come. How many bytes: 0 where nothing is there and deadline is None. Raises EOFError at the
        end, BadStream for what are no frames."""
        if self._codec is not None:
            return self._receive_coded(self._codec, inflow, deadline)
        self._wait_until(deadline)
        try:
            count = self._socket.recv_into(inflow)
        except (BlockingIOError, ssl.SSLWantReadError):
            return 0
        if not count:
            raise EOFError
        inflow.fed(count)
        return count

    def _receive_coded(self, codec: Codec, inflow: Inflow, deadline: float | None) -> int:
        """Never more than a piece at a time, so that little input cannot become much memory."""
        if not self._more:
            self._wait_until(deadline)
            try:
                data = self._socket.recv(READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return 0
            if not data:
                raise EOFError
            codec.put(data)
        piece = codec.get()
        self._more = bool(piece)
        inflow.feed(piece)
        # Bytes have come, even if they do not make a piece yet.
        return len(piece) or 1

    def receive_exactly(self, count: int, deadline: float) -> bytes:
        """Not a byte more: what follows may be in another form."""
        found = bytearray()
        while len(found) < count:
            self._wait_until(deadline)
            data = self._socket.recv(count - len(found))
            if not data:
                raise EOFError
            found += data
        return bytes(found)

    @property
    def pending(self) -> bool:
        """Whether something can be received that a selector does not see."""
        return self._more or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0)

    # ------------------------------------------------------------------ out

    def send(self, data: Any, deadline: float) -> None:
        """All of it, behind what is still unsent."""
        self.push(data)
        while self._unsent:
            self._socket.settimeout(left(deadline))
            rest = memoryview(self._unsent)
            self._unsent = self._unsent[self._socket.send(rest):]

    def send_all(self, data: Any, deadline: float) -> None:
        """All of it, without a copy where nothing is encoded."""
        if self._codec is not None or self._unsent:
            self.send(data, deadline)
            return
        self._socket.settimeout(left(deadline))
        self._socket.sendall(data)

    def push(self, data: Any) -> None:
        """Keeps it for flush() and send()."""
        if self._codec is not None:
            data = self._codec.pack(bytes(data))
        self._unsent += data

    def flush(self) -> bool:
        """Sends what the socket takes now; whether everything is gone."""
        self._socket.settimeout(0)
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent):]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return False
        return True

    @property
    def unsent(self) -> int:
        """Bytes that flush() has still to send."""
        return len(self._unsent)

    # ------------------------------------------------------------------ the end

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def close(self) -> None:
        """At once."""
        self._socket.close()

    def close_gently(self, deadline: float) -> None:
        """Says that nothing more comes, and waits until the other side has read everything and closes."""
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.settimeout(left(deadline))
                self._socket.unwrap().close()
                return
            self._socket.shutdown(socket.SHUT_WR)
            while time.monotonic() < deadline:
                self._socket.settimeout(left(deadline))
                if not self._socket.recv(1 << 16):
                    break
        except (OSError, ValueError):
            pass    # it is closed all the same
        finally:
            self._socket.close()

    def _wait_until(self, deadline: float | None) -> None:
        self._socket.settimeout(0 if deadline is None else left(deadline))


def left(deadline: float) -> float:
    """Seconds until then, never 0: that would mean not to wait."""
    return max(deadline - time.monotonic(), 0.001)


def dial(address: str, timeout: float) -> socket.socket:
    """A connected socket. Raises OSError, BadAddress."""
    if is_path(address):
        found = socket.socket(socket.AF_UNIX)
        try:
            found.settimeout(timeout)
            found.connect(address)
        except OSError:
            found.close()
            raise
        return found
    found = socket.create_connection(split_address(address), timeout)
    tune(found)
    return found


def tune(sock: socket.socket) -> None:
    """A TCP connection to nsqd: small commands leave at once, and a machine that has vanished is noticed in two
    minutes."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
