"""Connections to HTTP servers, for blocking calls: over TCP, TLS or a unix socket. Import it late: http.client is slow
to import."""

from __future__ import annotations

import http.client
import socket
import ssl

from nsqc.client.address import HttpAddress
from nsqc.wire.nodehosts import ip_of
from nsqc.wire.outside import Answer, JSONError, decode, recognized

MOST_INFO = 64 << 10    # bytes of /info


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Opens the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def authorization(secret: str | None) -> dict[str, str]:
    """The request header that carries a secret, such as an access file's token."""
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def https_port_of(connection: http.client.HTTPConnection, target: str) -> int:
    """Asks a node over HTTP, before any secret is sent in clear text, for the port of its HTTPS; 0: it has none, or
    does not require it and is on this machine. target: of its /info. Raises OSError, HTTPException."""
    connection.request("GET", target, headers={"Accept": "application/vnd.nsq; version=1.0"})
    peer = connection.sock.getpeername()
    answer = connection.getresponse()
    body = answer.read(MOST_INFO)
    if not answer.isclosed():
        connection.close()
    if not isinstance(peer, tuple):
        return 0
    ip = ip_of(peer[0])
    if b"https_port" not in body or (answer.status != 403 and ip is not None and ip.is_loopback):
        return 0
    try:
        value = decode(body)
    except JSONError:
        return 0
    port = value.get("https_port") if isinstance(value, dict) else 0
    return port if isinstance(port, int) and 0 < port < 65536 else 0


def connection_to(address: HttpAddress, timeout: float, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
    """A connection that opens with its first request. tls: the context; None selects HTTP for an address without a
    scheme, and the system's authorities for an https URL. Raises OSError if those cannot be read."""
    if address.socket:
        return UnixConnection(address.socket, timeout)
    if address.tls or (address.tls is None and tls is not None):
        return http.client.HTTPSConnection(address.host, address.port, timeout=timeout,
                                           context=tls or ssl.create_default_context())
    return http.client.HTTPConnection(address.host, address.port, timeout=timeout)


def answered_by(error: http.client.HTTPException) -> Answer | None:
    """The service that sent an answer other than HTTP; None: unknown."""
    line = getattr(error, "line", None)
    return recognized(line.encode("latin-1", "replace")) if isinstance(line, str) else None
