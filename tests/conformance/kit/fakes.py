"""Servers that nsqd talks to: auth, nsqlookupd, statsd."""

from __future__ import annotations

import http.server
import json
import queue
import re
import socket
import struct
import threading
import time
import urllib.parse
from typing import Any

from kit.base import CLOSED, HOST, BadScenario
from kit.data import shown
from kit.normal import Normaliser

from tests.support.tcpserver import TcpServer


class Fake:
    """Records events; steps read them in order."""

    def __init__(self) -> None:
        self.events: queue.Queue[Any] = queue.Queue()
        self.place = ""  # the address that ${name} stands for
        self.sides: dict[str, Fake] = {}  # further event queues, by suffix of the name

    def answer(self, **changes: Any) -> None:
        raise BadScenario("this fake cannot change its answer")

    def drop(self) -> None:
        raise BadScenario("this fake has no connections to drop")

    def stop(self) -> None:
        pass


class WebFake(Fake):
    """An HTTP server that answers through respond()."""

    def __init__(self) -> None:
        super().__init__()
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = fake.respond(self.path, self.headers)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.web = http.server.ThreadingHTTPServer((HOST, 0), Handler)
        self.web.daemon_threads = True
        self.web_port = self.web.server_address[1]
        threading.Thread(target=self.web.serve_forever, args=(0.05,), daemon=True).start()

    def respond(self, path: str, headers: Any) -> tuple[int, bytes]:
        raise NotImplementedError

    def stop(self) -> None:
        self.web.shutdown()
        self.web.server_close()


class FakeAuth(WebFake):
    """Answers every query with the same status and body until told otherwise."""

    def __init__(self, spec: dict[str, Any], _: Normaliser):
        super().__init__()
        self.place = f"{HOST}:{self.web_port}"
        self.answer(**spec)

    def answer(self, status: int = 200, reply: Any = None, text: str | None = None) -> None:
        self.status = status
        self.body = (text if text is not None else json.dumps(reply)).encode()

    def respond(self, path: str, headers: Any) -> tuple[int, bytes]:
        url = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        self.events.put({"path": url.path, "query": query, "accept": headers.get("Accept")})
        return self.status, self.body


class FakeLookupd(TcpServer, WebFake):
    """Speaks the lookup protocol, and answers /channels over HTTP."""

    def __init__(self, spec: dict[str, Any], normalise: Normaliser):
        WebFake.__init__(self)
        self.normalise = normalise
        self.channels: dict[str, list[str]] = spec.get("channels", {})
        self.identify_reply = spec.get("identify_reply")
        self.sides = {".http": Fake()}
        TcpServer.__init__(self)
        self.place = self.address

    def respond(self, path: str, headers: Any) -> tuple[int, bytes]:
        self.sides[".http"].events.put(f"GET {path}")
        topic = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query).get("topic", [""])[0]
        if topic not in self.channels:
            return 404, b'{"message":"TOPIC_NOT_FOUND"}'
        return 200, json.dumps({"channels": self.channels[topic]}).encode()

    def serve(self, guest: socket.socket) -> None:
        stream = guest.makefile("rb")
        try:
            self.events.put({"magic": shown(stream.read(4))})
            while line := stream.readline():
                words = line.decode().rstrip("\n")
                reply = b"OK"
                if words == "IDENTIFY":
                    (size,) = struct.unpack(">i", stream.read(4))
                    body = json.loads(stream.read(size))
                    self.events.put({"IDENTIFY": self.normalise.json(body)})
                    reply = self._introduction()
                else:
                    self.events.put(words)
                guest.sendall(struct.pack(">i", len(reply)) + reply)
        finally:
            self.events.put(CLOSED)

    def _introduction(self) -> bytes:
        if self.identify_reply is not None:
            return self.identify_reply.encode()
        return json.dumps({"tcp_port": self.port, "http_port": self.web_port, "version": "1.3.0",
                           "hostname": "lookup", "broadcast_address": HOST}).encode()

    def stop(self) -> None:
        self.close()
        super().stop()


class FakeStatsd(Fake):
    """Collects datagrams: counters are summed up, gauges keep the last value."""

    def __init__(self, spec: dict[str, Any], _: Normaliser):
        super().__init__()
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((HOST, 0))
        self.sock.settimeout(0.2)
        self.place = f"{HOST}:{self.sock.getsockname()[1]}"
        self.lock = threading.Lock()
        self.table: dict[str, int] = {}
        self.seen_at: dict[str, float] = {}
        self.largest = 0
        self.odd: list[Any] = []
        self.open = True
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while self.open:
            try:
                packet = self.sock.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                return
            self.largest = max(self.largest, len(packet))
            if not packet.endswith(b"\n"):
                self.odd.append(shown(packet))
            for line in packet.decode(errors="replace").splitlines():
                self._line(line)

    def _line(self, line: str) -> None:
        found = re.fullmatch(r"(\S+):(-?\d+)\|([cg])", line)
        if not found:
            self.odd.append(line)
            return
        key = f"{found[1]}|{found[3]}"
        with self.lock:
            before = self.table.get(key, 0) if found[3] == "c" else 0
            self.table[key] = before + int(found[2])
            self.seen_at[key] = time.monotonic()

    def snapshot(self) -> tuple[dict[str, int], float]:
        """The table, and the last arrival of the line that has not recurred for longest."""
        with self.lock:
            return dict(sorted(self.table.items())), min(self.seen_at.values(), default=0)

    def stop(self) -> None:
        self.open = False
        self.sock.close()


FAKES = {"auth": FakeAuth, "lookupd": FakeLookupd, "statsd": FakeStatsd}
