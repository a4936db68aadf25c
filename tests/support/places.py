"""Servers that may listen at an address given to a tool: NSQ's daemons, another HTTP server, a TLS server."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.daemon import Daemon
from tests.support.lookupd import LookupServer
from tests.support.secure import self_signed


class TlsServer:
    """Speaks TLS, and answers nothing."""

    def __init__(self, certificate: Path):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        self._context = context
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                with self._context.wrap_socket(client, server_side=True) as secured:
                    secured.recv(4096)
            except OSError:
                client.close()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


class WebServer:
    """Knows one page."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = b"<html>welcome</html>" if self.path == "/" else b"<html>not found</html>"
                self.send_response(200 if self.path == "/" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *_):
                """Nothing on stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Places:
    """addresses: by kind of server."""

    def __init__(self, folder: Path):
        self_signed(folder, "server", "localhost")
        certificate = folder / "server.pem"
        self.lookupd = LookupServer(folder / "lookupd.log")
        self.node = Daemon(folder / "data", f"--tls-cert={certificate}", f"--tls-key={certificate.with_suffix('.key')}")
        self.web, self.tls = WebServer(), TlsServer(certificate)
        https = re.search(r"HTTPS: listening on \S+:(\d+)", self.node.log_path.read_text())
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in {
            "nsqd tcp": self.node.tcp_port, "nsqd http": self.node.http_port, "nsqd https": int(https[1]),
            "lookupd tcp": self.lookupd.tcp_port, "lookupd http": self.lookupd.http_port, "web": self.web.port,
            "tls": self.tls.port}.items()}

    def close(self) -> None:
        for each in (self.web, self.tls, self.node, self.lookupd):
            each.close()


# The name of each in errors.
WORDS = {"nsqd tcp": "nsqd's TCP port", "nsqd http": "nsqd's HTTP port", "nsqd https": "a TLS port",
         "lookupd tcp": "nsqlookupd's TCP port", "lookupd http": "nsqlookupd's HTTP port",
         "web": "another program's HTTP port", "tls": "a TLS port"}
