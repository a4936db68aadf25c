"""Real daemons for the HTTP tests, driven over raw sockets."""

import itertools
import json
import re
import socket

import pytest

from tests.httpd.wire import Reply, Wire
from tests.support.daemon import Client, Daemon, wait_until
from tests.support.patience import WAIT_SECONDS


class HttpDaemon(Daemon):
    """A daemon with raw access to its HTTP port."""

    @property
    def address(self) -> str:
        """The port of the HTTP listener."""
        return re.findall(r"HTTP: listening on (\S+)", self.log)[-1]

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Waits for a match in the log, and returns it."""
        return wait_until(lambda: re.search(pattern, self.log, re.MULTILINE), repr(pattern))

    def wire(self, receive_buffer: int = 0) -> Wire:
        """A connection to the HTTP port."""
        if self.unix:
            sock = socket.socket(socket.AF_UNIX)
            where = self.address
        else:
            sock = socket.socket()
            where = ("127.0.0.1", self.http_port)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(WAIT_SECONDS)
        sock.connect(where)
        return Wire(sock)

    def talk(self, mib: int) -> list[Client]:
        """Clients of t/c whose names make the statistics exceed mib MiB. Text escapes U+0001 as 4 bytes, JSON as 6."""
        name = "\x01" * 1024     # longer ones are cut
        clients = [self.connect() for _ in range(mib * (1 << 20) // (2 * 4 * 1024))]
        for client in clients:
            client.command("IDENTIFY", json.dumps({"hostname": name, "user_agent": name}).encode())
            assert client.frame() == (0, b"OK")
            client.sub("t", "c")
        return clients

    def call(self, method: str, path: str, body: bytes = b"", headers: str = "") -> Reply:
        """One request on a new connection."""
        with self.wire() as wire:
            wire.request(method, path, body, headers)
            return wire.reply(head=method == "HEAD")


@pytest.fixture
def start(tmp_path):
    """start(*flags) starts daemons; they end with the test."""
    running = []
    numbers = itertools.count()

    def run(*flags: str, **more: object) -> HttpDaemon:
        running.append(HttpDaemon(tmp_path / f"data{next(numbers)}", *flags, **more))
        return running[-1]

    yield run
    for node in running:
        node.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One daemon for all tests of a file that do not affect each other."""
    node = HttpDaemon(tmp_path_factory.mktemp("server") / "data")
    yield node
    assert node.stop() == 0
