"""A real lookup server for tests, and nodes that speak to it byte by byte."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.daemon import unwatched
from tests.support.forks import run
from tests.support.patience import WAIT_SECONDS

HOST = "127.0.0.1"
COMMAND = (sys.executable, "-m", "nsqc", "lookupd")


class LookupServer:
    """One running server on free ports. stop() and start() keep the ports."""

    def __init__(self, log_path: Path, *flags: str, command: tuple[str, ...] = COMMAND, preexec=None,
                 **process: Any):
        """process: further arguments of subprocess.Popen."""
        self.popen = process
        self.log_path = log_path
        self.flags = flags
        self.command = command
        self.preexec = preexec
        self.tcp_port = self.http_port = 0
        self.start()

    def start(self) -> None:
        """Starts, and waits until both ports are in the log."""
        known = self.log_path.stat().st_size if self.log_path.exists() else 0
        words = [*unwatched(self.flags), f"--tcp-address={HOST}:{self.tcp_port}",
                 f"--http-address={HOST}:{self.http_port}", *self.flags]
        is_plain = self.command == COMMAND and not (self.preexec or self.popen)
        with self.log_path.open("ab") as log:
            self.process = run(["lookupd", *words], log) if is_plain else subprocess.Popen(
                [*self.command, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self.preexec,
                **self.popen)
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            lines = self.log_path.read_bytes()[known:].decode(errors="replace").splitlines()
            ports = {line.split(": listening on ")[0].split()[-1]: int(line.rsplit(":", 1)[1])
                     for line in lines if ": listening on " in line}
            if "TCP" in ports and len(ports) == 2:
                self.tcp_port, self.http_port = ports.pop("TCP"), *ports.values()
                return
            if self.process.poll() is not None:
                raise AssertionError(f"the server left with {self.process.returncode}: {lines[-3:]}")
            time.sleep(0.01)
        self.close()
        raise AssertionError("the server did not start")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(WAIT_SECONDS)

    def close(self) -> None:
        """Kills it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def tcp_address(self) -> str:
        return f"{HOST}:{self.tcp_port}"

    @property
    def http_address(self) -> str:
        return f"{HOST}:{self.http_port}"

    def call(self, method: str, path: str) -> tuple[int, bytes]:
        """Status and body of one call."""
        connection = http.client.HTTPConnection(HOST, self.http_port, timeout=WAIT_SECONDS)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """An answer that must be JSON with status 200."""
        status, body = self.call("GET", path)
        assert status == 200, (path, status, body)
        return json.loads(body)

    def found(self, topic: str) -> list[str]:
        """Addresses of the nodes in the answer of /lookup, sorted; none for an unknown topic."""
        status, body = self.call("GET", f"/lookup?topic={topic}")
        assert status in (200, 404), body
        return sorted(one["broadcast_address"] for one in json.loads(body).get("producers", []))

    def contents(self) -> Counter[str]:
        """The numbers of /debug/pprof/heap by name; `objects CLASS` for live objects of a class."""
        _, body = self.call("GET", "/debug/pprof/heap")
        return Counter({name: int(value) for name, value in (line.rsplit(" ", 1) for line in body.decode().splitlines())})

    def cpu(self) -> float:
        """CPU time so far, seconds."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Node:
    """A raw connection."""

    def __init__(self, server: LookupServer, name: str = "", magic: bytes = b"  V1"):
        """With a name it identifies itself at once."""
        self.name = name
        self.sock = socket.create_connection((HOST, server.tcp_port), WAIT_SECONDS)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send(magic)
        if name:
            self.send(identify(name))
            assert json.loads(self.reply())["tcp_port"] == server.tcp_port

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def ok(self, *lines: str) -> None:
        """Commands in one write that must all be answered with OK."""
        self.send("".join(f"{line}\n" for line in lines).encode())
        for line in lines:
            assert self.reply() == b"OK", line

    def reply(self) -> bytes:
        """The next reply; empty: the connection has ended."""
        head = self._exactly(4)
        return self._exactly(int.from_bytes(head, "big")) if head else b""

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                return b""
            data += more
        return data

    def close(self, reset: bool = False) -> None:
        """reset: without a goodbye."""
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def identify(name: str, http_port: int = 4151, tcp_port: int = 4150) -> bytes:
    """IDENTIFY with its body."""
    body = json.dumps({"version": "1.3.0", "tcp_port": tcp_port, "http_port": http_port, "hostname": name,
                       "broadcast_address": name}).encode()
    return b"IDENTIFY\n" + struct.pack(">i", len(body)) + body
