"""One server under one case: what the case does to it, and what is measured while it does."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perf.load import build
from perf.load.server import Server
from perf.load.work import ClientError
from perf.stalls import programs

HEAD_BYTES = 30             # of a message on disk, in front of its body
READY_SECONDS = 90
CALL_SECONDS = 120
HEALTHY = 10
GENTLE = 5                  # nice value of the load, so that it is the daemon that keeps /ping waiting
POLL_S = 0.1


@dataclass(frozen=True)
class Scale:
    """How much is done: share of the messages, of the seconds."""

    count: float = 1.0
    seconds: float = 1.0


QUICK = Scale(0.005, 0.1)


@dataclass
class Seen:
    """What a case has measured. Times in ms, sizes in bytes."""

    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0
    grew: int = 0
    queued: int = 0
    in_memory: int = 0
    clients: int = 0
    dropped: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    held: bool | None = None        # a case's own bar, if it has one


class Helper:
    """A program that prints a line when it is ready and one at the end, which its closed stdin asks for."""

    def __init__(self, *command: object, nice: int = 0):
        self.name = Path(str(command[0])).name
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.nice(nice))

    def ready(self) -> Helper:
        """Waits for the first line. Raises ClientError."""
        if not select.select([self.process.stdout], [], [], READY_SECONDS)[0] or not self.process.stdout.readline():
            self.process.kill()
            raise ClientError(f"{self.name}: {self.process.communicate()[1].strip() or 'is not ready'}")
        return self

    def end(self) -> dict[str, Any]:
        """Its figures. Raises ClientError."""
        try:
            out, error = self.process.communicate(timeout=READY_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, error = self.process.communicate()
        if self.process.returncode:
            raise ClientError(f"{self.name}: {error.strip() or self.process.returncode}")
        return json.loads(out.splitlines()[-1]) if out.strip() else {}

    def close(self) -> None:
        """Ends it whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        with contextlib.suppress(ValueError):
            self.process.communicate()


class Stage:
    """What a case works with. topics: whose queues count; body: the size of their messages."""

    def __init__(self, server: Server, scale: Scale):
        self.server = server
        self.scale = scale
        self.seen = Seen()
        self.topics = ["load"]
        self.body = 200
        self.healthy = HEALTHY
        self._helpers: list[Helper] = []
        self._resident = server.resident()

    def close(self) -> None:
        """Ends every program that is left."""
        for helper in self._helpers:
            helper.close()

    def count(self, count: int) -> int:
        """As many as the scale wants."""
        return max(10, int(count * self.scale.count))

    def seconds(self, seconds: float) -> float:
        """As long as the scale wants."""
        return seconds * self.scale.seconds

    def note(self, text: str) -> None:
        """Something to say in the table."""
        self.seen.notes.append(text)

    # ------------------------------------------------------------------ measuring

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """/ping, memory and healthy clients while the body of the with statement runs."""
        beats = self.helper(programs.beats(), self.server.tcp, self.healthy).ready()
        before = self.queued()
        self._reset_peak()
        ping = self.helper(programs.ping(), self.server.http).ready()
        began = time.monotonic()
        yield
        self.seen.seconds = time.monotonic() - began
        figures = ping.end()
        self.seen.p50, self.seen.p99, self.seen.max = (figures[name] for name in ("p50_ms", "p99_ms", "max_ms"))
        if not figures["answered"]:
            self.note("no answer in a minute")
        self.seen.grew = max(0, self._peak() - self._resident)
        self.seen.queued, self.seen.in_memory = map(max, before, self.queued())
        time.sleep(self.seconds(1.5))       # a heartbeat and a half: who was dropped sees it
        heard = beats.end()
        self.seen.clients, self.seen.dropped = self.healthy, heard["dropped"]

    def queued(self) -> tuple[int, int]:
        """Bytes of all messages in the topics and their channels, as on disk; and of those that are in memory."""
        count = in_memory = 0
        for topic in self.topics:
            found = self.stats(topic)
            channels = found.get("channels") or []
            held = sum(channel["in_flight_count"] + channel["deferred_count"] for channel in channels)
            depth, on_disk = (sum(queue.get(name, 0) for queue in (found, *channels))
                              for name in ("depth", "backend_depth"))
            count += depth + held
            in_memory += depth - on_disk + held
        return count * (HEAD_BYTES + self.body), in_memory * (HEAD_BYTES + self.body)

    def _reset_peak(self) -> None:
        for pid in self.server.processes():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def _peak(self) -> int:
        return sum(int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) * 1024
                   for pid in self.server.processes())

    # ------------------------------------------------------------------ talking to the server

    def helper(self, *command: object, nice: int = 0) -> Helper:
        """A program that ends with the stage at the latest."""
        self._helpers.append(Helper(*command, nice=nice))
        return self._helpers[-1]

    def client(self, mode: str, *options: object, port: int | None = None) -> Helper:
        """perf/load's client, in the background."""
        return self.helper(build.client(), mode, "-p", port or self.server.tcp, *options, nice=GENTLE)

    def publish(self, count: int, topic: str = "load") -> None:
        """Fills a topic."""
        done = self.client("pub", "-T", topic, "-s", self.body, "-b", 200, "-w", 4, "-c", 1, "-t", 120, "-n", count)
        done.end()

    def strange(self, *arguments: object) -> Helper:
        """A client that is unkind, in the background."""
        mode, *rest = arguments
        return self.helper(programs.strange(), mode, self.server.tcp, *rest, nice=GENTLE)

    def hold(self, count: int, topic: str = "load") -> Helper:
        """A client that has so many messages in flight."""
        return self.strange("hold", count, topic).ready()

    def call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """One HTTP call on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.http, timeout=CALL_SECONDS)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def timed_call(self, method: str, path: str, body: bytes | None = None) -> float:
        """The same; must succeed. Seconds. Raises ClientError."""
        began = time.monotonic()
        status, text = self.call(method, path, body)
        if status != 200:
            raise ClientError(f"{method} {path}: {status} {text[:200]!r}")
        return time.monotonic() - began

    def connect(self) -> socket.socket:
        """A V2 connection."""
        sock = socket.create_connection(("127.0.0.1", self.server.tcp), timeout=CALL_SECONDS)
        sock.sendall(b"  V2")
        return sock

    def stats(self, topic: str) -> dict[str, Any]:
        """Of one topic."""
        status, text = self.call("GET", f"/stats?format=json&include_clients=false&topic={topic}")
        topics = json.loads(text)["topics"] if status == 200 else None
        return topics[0] if topics else {}

    def drained(self, topic: str = "load", seconds: float = 10.0) -> None:
        """Returns when nothing is left in the topic itself, or after so long."""
        until = time.monotonic() + self.seconds(seconds)
        while (left := self.stats(topic).get("depth", 0)) and time.monotonic() < until:
            time.sleep(POLL_S)
        if left:
            self.note(f"{left:,} still in the topic")


def frame(sock: socket.socket) -> bytes:
    """The next frame's data. Raises ClientError."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        more = sock.recv(65536)
        if not more:
            raise ClientError("the server has closed the connection")
        data += more
    return data[8:]
