"""Real daemons for the HTTP tests, driven over raw sockets."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.httpd.wire import Wire

# Another server to try the tests on, or else the daemon from this tree.
COMMAND = shlex.split(os.environ.get("NSQC_COMMAND", "")) or [sys.executable, "-m", "nsqc", "serve"]
DEADLINE_S = 20


class Daemon:
    """A process with its own data path, and its log so far."""

    def __init__(self, data_path: Path, *flags: str) -> None:
        self.lines: list[str] = []
        self._news = threading.Condition()
        given = {flag.split("=")[0] for flag in flags}
        addresses = [f"{name}=127.0.0.1:0" for name in ("--tcp-address", "--http-address") if name not in given]
        root = str(Path(__file__).parents[2])
        self.process = subprocess.Popen(
            [*COMMAND, f"--data-path={data_path}", *addresses, *flags], stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": root})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.address = self.wait_for(r"HTTP: listening on (\S+)")[1]
        # What lets messages flow comes with it.
        self.wait_for(r"TCP: listening on (\S+)")

    def _read(self) -> None:
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line of the log that matches."""
        found = None

        def look() -> bool:
            nonlocal found
            found = next((m for m in (re.search(pattern, line) for line in self.lines) if m), None)
            return found is not None or not self._reader.is_alive()

        with self._news:
            self._news.wait_for(look, DEADLINE_S)
        assert found is not None, f"{pattern!r} is not in the log:\n{''.join(self.lines)}"
        return found

    def connect(self, receive_buffer: int = 0) -> Wire:
        """A connection to the HTTP port."""
        if "/" in self.address:
            sock = socket.socket(socket.AF_UNIX)
            where = self.address
        else:
            sock = socket.socket()
            host, port = self.address.rsplit(":", 1)
            where = (host, int(port))
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(DEADLINE_S)
        sock.connect(where)
        return Wire(sock)

    def call(self, method: str, path: str, body: bytes = b"", headers: str = ""):
        """One request on a connection of its own."""
        with self.connect() as wire:
            wire.request(method, path, body, headers)
            return wire.reply(head=method == "HEAD")

    def resident_bytes(self) -> int:
        """Memory in use."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")

    def stop(self) -> int:
        """Ends it with SIGTERM; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join(DEADLINE_S)
        self.process.stderr.close()
        return code


@pytest.fixture
def start(tmp_path):
    """Starts daemons; they end with the test."""
    started = []

    def run(*flags: str) -> Daemon:
        path = tmp_path / f"data{len(started)}"
        path.mkdir()
        started.append(Daemon(path, *flags))
        return started[-1]

    yield run
    for one in started:
        one.stop()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """One daemon for the tests of a file that leave no trace that another would see."""
    one = Daemon(tmp_path_factory.mktemp("data"))
    yield one
    one.stop()
