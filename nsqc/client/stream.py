"""A blocking byte stream over a socket; TLS and a codec can be added while in use.

Blocking calls take a deadline (time.monotonic()); the others never wait. Errors are OSError, and CodecError if the
stream cannot be decoded.
"""

from __future__ import annotations

import socket
import ssl
import time

from nsqc.client.address import is_path, split_address
from nsqc.client.inflow import Inflow
from nsqc.wire.codec import Codec

READ_BYTES = 256 * 1024


class Stream:
    """A connected TCP or unix socket."""

    def __init__(self, address: str, timeout: float):
        self._socket = dial(address, timeout)
        self._waits = True      # the socket has a timeout; false: it never waits
        self._codec: Codec | None = None
        self._more = False      # the codec may have more output without another read
        self._unsent = b""      # encoded, not yet accepted by the socket

    # ------------------------------------------------------------------ upgrades

    def secure(self, context: ssl.SSLContext, server_name: str, deadline: float) -> None:
        """Starts TLS."""
        self._wait_until(deadline)
        self._socket = context.wrap_socket(self._socket, server_hostname=server_name, suppress_ragged_eofs=True)

    def compress(self, codec: Codec) -> None:
        """Starts a codec, within TLS."""
        self._codec = codec

    # ------------------------------------------------------------------ input

    def receive(self, inflow: Inflow, deadline: float | None) -> int:
        """Reads into inflow; returns the byte count: 0 if nothing is available and deadline is None. Raises EOFError at
        the end, BadStream for anything but frames."""
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
        """Decodes one piece at a time, so that a decompression bomb cannot expand in memory."""
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
        # Bytes were received, even if they do not complete a piece yet.
        return len(piece) or 1

    def receive_exactly(self, count: int, deadline: float) -> bytes:
        """Reads exactly this many bytes: later ones may be encoded. Raises EOFError with the bytes read so far."""
        received = bytearray()
        while len(received) < count:
            self._wait_until(deadline)
            data = self._socket.recv(count - len(received))
            if not data:
                raise EOFError(bytes(received))
            received += data
        return bytes(received)

    @property
    def pending(self) -> bool:
        """Whether receive() would find bytes that a selector cannot see."""
        return self._more or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0)

    # ------------------------------------------------------------------ output

    def send(self, data: bytes | bytearray | memoryview, deadline: float) -> None:
        """Sends unsent bytes, then data."""
        self.push(data)
        while self._unsent:
            self._wait_until(deadline)
            rest = memoryview(self._unsent)
            self._unsent = self._unsent[self._socket.send(rest):]

    def send_all(self, data: bytes | bytearray | memoryview, deadline: float) -> None:
        """Like send(), without a copy if nothing has to be encoded."""
        if self._codec is not None or self._unsent:
            self.send(data, deadline)
            return
        self._wait_until(deadline)
        self._socket.sendall(data)

    def push(self, data: bytes | bytearray | memoryview) -> None:
        """Buffers data for flush() and send()."""
        if self._codec is not None:
            data = self._codec.pack(bytes(data))
        self._unsent = self._unsent + data if self._unsent else bytes(data)

    def flush(self) -> bool:
        """Sends as much as the socket accepts now; returns whether everything is sent."""
        if not self._unsent:
            return True
        self._wait_until(None)
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent):]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return False
        return True

    @property
    def unsent(self) -> int:
        """Bytes buffered for flush()."""
        return len(self._unsent)

    # ------------------------------------------------------------------ closing

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes at once."""
        self._socket.close()

    def close_gently(self, deadline: float) -> None:
        """Sends EOF and waits until the peer has read everything and closes."""
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                self._wait_until(deadline)
                self._socket.unwrap().close()
                return
            self._socket.shutdown(socket.SHUT_WR)
            while time.monotonic() < deadline:
                self._wait_until(deadline)
                if not self._socket.recv(1 << 16):
                    break
        except (OSError, ValueError):
            pass    # it is closed below anyway
        finally:
            self._socket.close()

    def _wait_until(self, deadline: float | None) -> None:
        """Sets the timeout of the next call; None: non-blocking. A system call, which most messages avoid."""
        if deadline is not None:
            self._socket.settimeout(left(deadline))
        elif self._waits:
            self._socket.settimeout(0)
        self._waits = deadline is not None


def left(deadline: float) -> float:
    """Seconds until the deadline, never 0: that would make the socket non-blocking."""
    return max(deadline - time.monotonic(), 0.001)


def dial(address: str, timeout: float) -> socket.socket:
    """A connected socket. Raises OSError, BadAddress."""
    if is_path(address):
        unix = socket.socket(socket.AF_UNIX)
        try:
            unix.settimeout(timeout)
            unix.connect(address)
        except OSError:
            unix.close()
            raise
        return unix
    tcp = socket.create_connection(split_address(address), timeout)
    tune(tcp)
    return tcp


def tune(sock: socket.socket) -> None:
    """Sets up a TCP connection to nsqd: small commands are sent at once, and a dead peer is detected within two
    minutes."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
