"""A program that anyone may run and announce as a node."""

from __future__ import annotations

import json
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.lookupd import LookupServer
from tests.support.patience import WAIT_SECONDS

SECRET = "the-secret-of-the-fleet"


class Stranger:
    """Answers like a node with an access file, and records requests: paths and Authorization."""

    def __init__(self, refusal: tuple[int, object] = (401, {"message": "UNAUTHORIZED - a token"}),
                 host: str = "127.0.0.1"):
        self.answers: dict[str, tuple[int, object]] = {}       # by path; bytes: as they are
        self.requests: list[tuple[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.requests.append((self.path, self.headers.get("Authorization", "")))
                status, answer = outer.answers.get(self.path.partition("?")[0], refusal)
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self.port = self._server.server_port
        self.address = f"{host}:{self.port}"
        self._sock: socket.socket | None = None
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def announce(self, lookupd: LookupServer) -> None:
        self._sock = socket.create_connection(("127.0.0.1", lookupd.tcp_port), WAIT_SECONDS)
        body = json.dumps({"broadcast_address": "127.0.0.1", "hostname": "x", "tcp_port": 1, "http_port": self.port,
                           "version": "1.3.0"}).encode()
        self._sock.sendall(b"  V1IDENTIFY\n" + struct.pack(">i", len(body)) + body)
        assert self._sock.recv(999)

    @property
    def secrets(self) -> list[str]:
        return [path for path, authorization in self.requests if SECRET in authorization]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        if self._sock is not None:
            self._sock.close()
