"""A real daemon for tests: its own process, on free ports and its own data path."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.forks import Forked, run
from tests.support.patience import WAIT_SECONDS

HEARTBEAT = b"_heartbeat_"
CRASHED = [-number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)]
COMMAND = (sys.executable, "-m", "nsqc", "serve")


def wait_until(condition, what: str = "the condition", seconds: float = WAIT_SECONDS) -> Any:
    """Polls until condition() is true and returns its value; fails after seconds. Ever less often: on a busy machine each
    look at a daemon takes time from the daemon."""
    deadline = time.monotonic() + seconds
    pause = 0.01
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(pause)
        pause = min(pause * 1.2, 0.1)
    raise AssertionError(f"{what} did not come true within {seconds:.0f} s")


def logged(node, text: str) -> str:
    """The first line of a server's log with this text; lines are written a little after the event."""
    return wait_until(lambda: next((line for line in node.log.splitlines() if text in line), None), text)


def unwatched(flags: tuple[str, ...]) -> tuple[str, ...]:
    """The flag that keeps slow iterations out of the log, which many tests read: a busy machine makes some slow. None
    beside flags that may set it."""
    return () if any(flag.startswith(("--slow-loop", "--config")) for flag in flags) else ("--slow-loop=0s",)


class Daemon:
    """One running nsqc. flags are nsqd's; stop() and start() keep the data path; a restart gets new ports."""

    def __init__(self, data_path: Path, *flags: str, command: tuple[str, ...] = (), preexec=None, unix: bool = False,
                 **process: Any):
        """process: further arguments of subprocess.Popen."""
        self.data_path = data_path
        self.flags = flags
        self.command = command
        self.preexec = preexec
        self.popen = process
        self.unix = unix
        self.log_path = data_path.with_name(data_path.name + ".log")
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.tcp_port = self.http_port = 0
        data_path.mkdir(exist_ok=True)
        self.start()

    def start(self, *more: str) -> None:
        """Starts, and waits until /ping is answered. The real ports are read from the log."""
        known = self.log_path.stat().st_size if self.log_path.exists() else 0
        addresses = ([f"--tcp-address={self.data_path}/tcp.sock", f"--http-address={self.data_path}/http.sock"]
                     if self.unix else ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"])
        if any(flag.startswith("--tls-cert") for flag in (*self.flags, *more)):
            addresses.append("--https-address=127.0.0.1:0")     # the default port may be taken
        words = [*addresses, f"--data-path={self.data_path}", *unwatched(self.flags), *self.flags, *more]
        with self.log_path.open("ab") as log:
            self.process = run(["serve", *words], log) if self.is_plain() else subprocess.Popen(
                [*(self.command or COMMAND), *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=self.preexec, **self.popen)
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            lines = self.log_path.read_bytes()[known:].decode(errors="replace").splitlines()
            ports = {line.split(": listening on ")[0].split()[-1]: line.rsplit(":", 1)[1]
                     for line in lines if ": listening on " in line}
            if {"TCP", "HTTP"} <= ports.keys():
                if not self.unix:
                    self.tcp_port, self.http_port = int(ports["TCP"]), int(ports["HTTP"])
                return
            if self.process.poll() is not None:
                raise AssertionError(f"the daemon left with {self.process.returncode}: {lines[-3:]}")
            time.sleep(0.01)
        raise AssertionError("the daemon did not start")

    def is_plain(self) -> bool:
        """Whether it starts in the usual way."""
        return not (self.command or self.preexec or self.popen)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(WAIT_SECONDS)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def restart(self, *more: str) -> None:
        """A graceful stop and a new start."""
        assert self.stop() == 0
        self.start(*more)

    def close(self) -> None:
        """Kills it if it still runs. It must not have crashed."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        assert self.process is None or self.process.returncode not in CRASHED, self.process.returncode

    @property
    def log(self) -> str:
        """Its log so far, over all starts."""
        return self.log_path.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The id of the running process."""
        return self.process.pid

    def rss(self) -> int:
        """Resident memory, bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def descriptors(self) -> list[str]:
        """The targets of its file descriptors."""
        folder = Path(f"/proc/{self.pid}/fd")
        targets = []
        for entry in folder.iterdir():
            try:
                targets.append(str(entry.readlink()))
            except FileNotFoundError:
                continue
        return targets

    # ------------------------------------------------------------------ HTTP

    def http(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of one call."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.http_port}{path}", data=body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def post(self, path: str, body: bytes = b"") -> None:
        """A call that must succeed."""
        status, answer = self.http("POST", path, body)
        assert status == 200, (path, status, answer)

    def stats(self, topic: str | None = None) -> dict:
        """/stats as JSON; with topic, that topic's."""
        path = "/stats?format=json" + (f"&topic={topic.replace('#', '%23')}" if topic else "")
        answer = json.loads(self.http("GET", path)[1])
        return answer["topics"][0] if topic else answer

    def channel(self, topic: str, channel: str) -> dict:
        """Statistics of one channel."""
        return next(c for c in self.stats(topic)["channels"] if c["channel_name"] == channel)

    # ------------------------------------------------------------------ TCP

    def publish(self, topic: str, *bodies: bytes, size: int = 5000) -> None:
        """Publishes on a separate connection, in batches of a size, each acknowledged."""
        client = self.connect()
        for at in range(0, len(bodies), size):
            client.pub(topic, *bodies[at:at + size])
        client.close()

    def connect(self, magic: bytes = b"  V2", source: str | None = None) -> Client:
        """A raw V2 connection; source: the local address."""
        if self.unix:
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(str(self.data_path / "tcp.sock"))
        else:
            sock = socket.create_connection(("127.0.0.1", self.tcp_port), source_address=source and (source, 0))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(sock)
        client.send(magic)
        return client


class Message:
    """A delivered message."""

    def __init__(self, data: bytes):
        self.timestamp, self.attempts, self.id = struct.unpack_from(">qH16s", data)
        self.body = data[26:]

    def __repr__(self) -> str:
        return f"Message({self.body!r}, attempts={self.attempts})"


class Client:
    """A raw V2 connection: bytes out, frames in; heartbeats are answered."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self.sock.settimeout(WAIT_SECONDS)
        self._kept = b""

    def send(self, data: bytes) -> None:
        """Raw bytes."""
        self.sock.sendall(data)

    def command(self, line: str, body: bytes | None = None) -> None:
        """A command line, with its body if it has one."""
        self.send(line.encode() + b"\n" + (struct.pack(">i", len(body)) + body if body is not None else b""))

    def ok(self, line: str, body: bytes | None = None) -> None:
        """A command that must be answered with OK."""
        self.command(line, body)
        answer = self.frame()
        assert answer == (0, b"OK"), (line, answer)

    def pub(self, topic: str, *bodies: bytes) -> None:
        """PUB, or MPUB for several."""
        if len(bodies) == 1:
            self.ok(f"PUB {topic}", bodies[0])
        else:
            self.ok(f"MPUB {topic}", batch(*bodies))

    def sub(self, topic: str, channel: str, rdy: int = 0) -> Client:
        """SUB, and RDY where it is above zero."""
        self.ok(f"SUB {topic} {channel}")
        if rdy:
            self.command(f"RDY {rdy}")
        return self

    def frame(self, seconds: float | None = None) -> tuple[int, bytes] | None:
        """The next frame as (type, data); None where the connection has ended. Raises TimeoutError."""
        self.sock.settimeout(WAIT_SECONDS if seconds is None else seconds)
        while True:
            if len(self._kept) >= 4:
                size = struct.unpack_from(">i", self._kept)[0]
                if len(self._kept) >= 4 + size:
                    kind, data = struct.unpack_from(">i", self._kept, 4)[0], self._kept[8:4 + size]
                    self._kept = self._kept[4 + size:]
                    if (kind, data) != (0, HEARTBEAT):
                        return kind, data
                    self.send(b"NOP\n")
                    continue
            try:
                data = self.sock.recv(1 << 20)
            except ConnectionError:
                return None
            if not data:
                return None
            self._kept += data

    def message(self, seconds: float | None = None) -> Message:
        """The next frame, which must be a message."""
        kind, data = self.frame(seconds)
        assert kind == 2, (kind, data)
        return Message(data)

    def messages(self, count: int, finish: bool = False) -> list[Message]:
        """The next messages, finished on request."""
        messages = []
        for _ in range(count):
            messages.append(self.message())
            if finish:
                self.fin(messages[-1])
        return messages

    def fin(self, message: Message) -> None:
        """Finishes a message."""
        self.send(b"FIN " + message.id + b"\n")

    def quiet(self, seconds: float) -> bool:
        """Whether nothing arrives within this many seconds."""
        try:
            self.frame(seconds)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        """Closes the socket."""
        self.sock.close()


def batch(*bodies: bytes) -> bytes:
    """The body of a multi-publish."""
    return struct.pack(">i", len(bodies)) + b"".join(struct.pack(">i", len(b)) + b for b in bodies)
