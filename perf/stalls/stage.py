"""One server under one case: the case's operations, and the measurements meanwhile."""

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

from perf import programs
from perf.load.server import Server
from perf.load.work import ClientError

HEAD_BYTES = 30             # of a message on disk, in front of its body
READY_SECONDS = 90
CALL_SECONDS = 120
HEALTHY = 10
GENTLE = 5                  # nice value of the load, so that only the daemon delays /ping
POLL_S = 0.1


@dataclass(frozen=True)
class Scale:
    """The amount of work: share of the messages, of the seconds."""

    count: float = 1.0
    seconds: float = 1.0


QUICK = Scale(0.005, 0.1)


@dataclass
class Result:
    """The measurements of a case. Times in ms, sizes in bytes."""

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
    own_bar_held: bool | None = None    # None: the case has no bar


class Program:
    """A program that prints a line when it is ready, and one when it ends because its stdin was closed."""

    def __init__(self, *command: object, nice: int = 0):
        self.name = Path(str(command[0])).name
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.nice(nice))

    def ready(self) -> Program:
        """Waits for the first line. Raises ClientError."""
        if not select.select([self.process.stdout], [], [], READY_SECONDS)[0] or not self.process.stdout.readline():
            self.process.kill()
            raise ClientError(f"{self.name}: {self.process.communicate()[1].strip() or 'is not ready'}")
        return self

    def end(self) -> dict[str, Any]:
        """Closes its stdin; the object in its last line. Raises ClientError."""
        try:
            out, error = self.process.communicate(timeout=READY_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, error = self.process.communicate()
        if self.process.returncode:
            raise ClientError(f"{self.name}: {error.strip() or self.process.returncode}")
        return json.loads(out.splitlines()[-1]) if out.strip() else {}

    def close(self) -> None:
        """Kills it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        with contextlib.suppress(ValueError):
            self.process.communicate()


class Stage:
    """The environment of a case. topics: those whose queues count; body: the size of their messages."""

    def __init__(self, server: Server, scale: Scale):
        self.server = server
        self.scale = scale
        self.result = Result()
        self.topics = ["load"]
        self.body = 200
        self.healthy = HEALTHY
        self._programs: list[Program] = []
        self._resident = server.resident()

    def close(self) -> None:
        """Ends every remaining program."""
        for program in self._programs:
            program.close()

    def count(self, count: int) -> int:
        """A count at this scale."""
        return max(10, int(count * self.scale.count))

    def seconds(self, seconds: float) -> float:
        """A time at this scale."""
        return seconds * self.scale.seconds

    def note(self, text: str) -> None:
        """Adds a remark to the table."""
        self.result.notes.append(text)

    # ------------------------------------------------------------------ measuring

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """/ping, memory and healthy clients while the body of the with statement runs."""
        beats = self.program(programs.client(), "beats", "-p", self.server.tcp, "-c", self.healthy).ready()
        before = self.queued()
        self._reset_peak()
        ping = self.program(programs.client(), "ping", "-p", self.server.http).ready()
        began = time.monotonic()
        yield
        self.result.seconds = time.monotonic() - began
        times = ping.end()
        self.result.p50, self.result.p99, self.result.max = (times[name] for name in ("p50_ms", "p99_ms", "max_ms"))
        if not times["answered"]:
            self.note("no answer in a minute")
        self.result.grew = max(0, self._peak() - self._resident)
        self.result.queued, self.result.in_memory = map(max, before, self.queued())
        time.sleep(self.seconds(1.5))       # a heartbeat and a half: a dropped client notices
        counts = beats.end()
        self.result.clients, self.result.dropped = self.healthy, counts["dropped"]

    def queued(self) -> tuple[int, int]:
        """Bytes of all messages in the topics and their channels, as on disk; and of those in memory."""
        count = in_memory = 0
        for topic in self.topics:
            topic_stats = self.stats(topic)
            channels = topic_stats.get("channels") or []
            held = sum(channel["in_flight_count"] + channel["deferred_count"] for channel in channels)
            depth, on_disk = (sum(queue.get(name, 0) for queue in (topic_stats, *channels))
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

    # ------------------------------------------------------------------ requests to the server

    def program(self, *command: object, nice: int = 0) -> Program:
        """Starts a program, which ends with the stage at the latest."""
        self._programs.append(Program(*command, nice=nice))
        return self._programs[-1]

    def client(self, mode: str, *options: object, port: int | None = None) -> Program:
        """The load client, in the background."""
        return self.program(programs.client(), mode, "-p", port or self.server.tcp, *options, nice=GENTLE)

    def publish(self, count: int, topic: str = "load") -> None:
        """Fills a topic."""
        done = self.client("pub", "-T", topic, "-s", self.body, "-b", 200, "-w", 4, "-c", 1, "-t", 120, "-n", count)
        done.end()

    def hold(self, count: int, topic: str = "load") -> Program:
        """A client with this many messages in flight."""
        return self.client("hold", "-n", count, "-T", topic).ready()

    def call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """One HTTP call on a separate connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.http, timeout=CALL_SECONDS)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def timed_call(self, method: str, path: str, body: bytes | None = None) -> float:
        """Seconds of a call that must succeed. Raises ClientError."""
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
        """Statistics of one topic; empty if there is none."""
        status, text = self.call("GET", f"/stats?format=json&include_clients=false&topic={topic}")
        topics = json.loads(text)["topics"] if status == 200 else None
        return topics[0] if topics else {}

    def drained(self, topic: str = "load", seconds: float = 10.0) -> None:
        """Returns when the topic itself is empty, or after this long."""
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
