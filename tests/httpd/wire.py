"""A raw client: bytes out, replies in."""

import json
import socket
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """One HTTP reply; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    version: str

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Closed(Exception):
    """The server closed the connection instead of replying."""


class Wire:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        """Sends all of data."""
        self.sock.sendall(data)

    def request(self, method: str, path: str, body: bytes = b"", headers: str = "") -> None:
        """Sends a request; headers are whole lines."""
        self.send(request(method, path, body, headers))

    def reply(self, head: bool = False) -> Reply:
        """The next reply; head: it has no body, despite its Content-Length."""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        top, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        first, *lines = top.decode("latin-1").split("\r\n")
        version, status = first.split(" ")[:2]
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        size = 0 if head or status == "100" else int(headers["content-length"])
        parts = [self.buffer]
        missing = size - len(self.buffer)
        while missing > 0:
            parts.append(self._received())
            missing -= len(parts[-1])
        data = b"".join(parts)
        body, self.buffer = data[:size], data[size:]
        return Reply(int(status), headers, body, version)

    def is_closed(self) -> bool:
        """Waits for the next event; returns whether it is the end."""
        if self.buffer:
            return False
        try:
            return not self.sock.recv(1)
        except ConnectionResetError:
            return True

    def _more(self) -> None:
        self.buffer += self._received()

    def _received(self) -> bytes:
        data = self.sock.recv(1 << 16)
        if not data:
            raise Closed(self.buffer)
        return data


def request(method: str, path: str, body: bytes = b"", headers: str = "") -> bytes:
    """The bytes of a request with a body of known length."""
    length = f"Content-Length: {len(body)}\r\n" if body or method in ("POST", "PUT") else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{length}\r\n".encode() + body


def chunked(path: str, *chunks: bytes, headers: str = "", trailer: bytes = b"") -> bytes:
    """The bytes of a POST in chunks."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{headers}\r\n".encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailer + b"\r\n"
