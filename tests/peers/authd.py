"""An auth server on a real socket: it records queries, and misbehaves on request."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import urllib.parse
from pathlib import Path
from typing import Any, NamedTuple

from tests.peers.fakes import TcpServer, http_answer

EVERYTHING = [{"topic": ".*", "channels": [".*"], "permissions": ["subscribe", "publish"]}]


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    facts: dict[str, str]
    headers: dict[str, str]


def reply(ttl: int = 3600, authorizations: list | None = None, **more: Any) -> bytes:
    """A usable answer."""
    return json.dumps({"ttl": ttl, "identity": "me", "identity_url": "http://id/?a=1&b=<2>",
                       "authorizations": EVERYTHING if authorizations is None else authorizations, **more}).encode()


class AuthServer(TcpServer):
    """answer: a body, a complete HTTP answer in bytes, or None to hang. tls: a certificate and key in one file."""

    def __init__(self, answer: bytes | None = None, port: int = 0, tls: Path | None = None, hangs: bool = False):
        self.answer = None if hangs else (answer or reply())
        self.asked: list[Asked] = []
        self.open = self.most_open = 0
        self.gate = threading.Event()
        self.gate.set()
        self._lock = threading.Lock()
        self._tls = None
        if tls is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(tls)
        super().__init__(port)

    def serve(self, guest: socket.socket) -> None:
        if self._tls is not None:
            guest = self._tls.wrap_socket(guest, server_side=True)
        with self._lock:
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        try:
            self.asked.append(read_request(guest.makefile("rb")))
            answer = self.answer
            self.gate.wait()
            if answer is None:
                # Until the daemon gives up.
                guest.recv(1)
                return
            guest.sendall(answer if answer.startswith(b"HTTP/") else http_answer(answer))
        finally:
            with self._lock:
                self.open -= 1
            guest.close()


def read_request(stream: Any) -> Asked:
    method, target, _ = stream.readline().decode().split(" ")
    headers = {}
    while line := stream.readline().decode().strip():
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    url = urllib.parse.urlsplit(target)
    if method == "POST":
        body = json.loads(stream.read(int(headers["content-length"])))
        assert all(len(values) == 1 for values in body.values())
        return Asked(method, target, {name: values[0] for name, values in body.items()}, headers)
    facts = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True, strict_parsing=True))
    return Asked(method, url.path, facts, headers)
