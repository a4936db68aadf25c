"""Measures the lookup server with many nodes: a storm of registrations, lookups, long lists, many disconnects.

    python -m perf.lookupd.run [--nodes 10000] [--each 100] [--topics 1000] [--watch | COMMAND]

COMMAND gets nsqlookupd's flags appended, so the original can be measured, too. --topics: the total; each node registers
--each of them. Each line has the work, the time it took, and the longest /ping meanwhile, sent by another process every
millisecond; with --watch the longest loop iteration instead, in CPU time, which does not depend on a busy machine.

    storm       all nodes, connected already, identify and register everything at once; until the last OK
    lookup      /lookup of one topic after another on one connection: median and 99th percentile
    ping        all nodes send PING at once
    nodes, topics, debug
                one such list
    flapping    a tenth of the nodes leave and come back, five times, while /lookup is asked: median and 99th percentile
    loss        half of the nodes disconnect at once; until /lookup names none of them
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import resource
import selectors
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from perf.lookupd.watched import MEASURE
from tests.support.ports import free_port

WAIT_S = 300.0
LOOKUPS = 1000
OK = b"\0\0\0\x02OK"
FIRST_PORT = 10_000     # of the nodes' HTTP: identifies each node


class Server:
    """The lookup server."""

    def __init__(self, command: list[str]):
        self.tcp, self.http = free_port(), free_port()
        self.process = subprocess.Popen(
            [*command, f"--http-address=127.0.0.1:{self.http}", f"--tcp-address=127.0.0.1:{self.tcp}"],
            stderr=subprocess.DEVNULL)
        end = time.monotonic() + WAIT_S
        while True:
            try:
                get(self.connection(), "/ping")
                return
            except ConnectionError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise SystemExit("the server does not start") from None
                time.sleep(0.005)

    def connection(self) -> http.client.HTTPConnection:
        """A keep-alive connection."""
        return http.client.HTTPConnection("127.0.0.1", self.http, timeout=WAIT_S)

    def rss(self) -> int:
        """Resident memory, bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def cpu(self) -> float:
        """CPU time so far, seconds."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def get(connection: http.client.HTTPConnection, path: str) -> bytes:
    """One request that must succeed."""
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status} {body[:200]!r}")
    return body


class Pings:
    """Another process that sends /ping; over() ends it and returns its longest wait in seconds."""

    def __init__(self, server: Server):
        self.process = subprocess.Popen([sys.executable, "-m", "perf.lookupd.run", "--probe", str(server.http)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def over(self) -> float:
        out, _ = self.process.communicate("\n")
        return float(out)


def probe(port: int) -> None:
    """The main function of that process: runs until a line comes on stdin."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    get(connection, "/ping")
    print("ready", flush=True)
    watch = selectors.DefaultSelector()
    watch.register(sys.stdin, selectors.EVENT_READ)
    longest = 0.0
    while not watch.select(0.001):
        began = time.monotonic()
        get(connection, "/ping")
        longest = max(longest, time.monotonic() - began)
    print(longest)


class Nodes:
    """Raw connections of nodes."""

    def __init__(self, server: Server, each: int, topics: int):
        self.server, self.each, self.topics = server, each, topics
        self.open: dict[int, socket.socket] = {}

    def connect(self, numbers: range) -> None:
        """Connects these, and sends nothing."""
        for number in numbers:
            self.open[number] = socket.create_connection(("127.0.0.1", self.server.tcp), WAIT_S)

    def register(self, numbers: range) -> None:
        """Each sends its magic, IDENTIFY and all its topics in one write; returns when everything is answered."""
        size = len(OK) * self.each
        for number in numbers:
            body = json.dumps({"version": "1.3.0", "tcp_port": 4150, "http_port": FIRST_PORT + number,
                               "hostname": f"host-{number}", "broadcast_address": f"node-{number}.example"}).encode()
            names = (b"REGISTER topic-%d\n" % ((number * 7919 + one * 31) % self.topics) for one in range(self.each))
            self.open[number].sendall(b"  V1IDENTIFY\n" + struct.pack(">i", len(body)) + body + b"".join(names))
        self._await(numbers, size, identified=True)

    def ping(self, numbers: range) -> None:
        """Each sends PING; returns when all are answered."""
        for number in numbers:
            self.open[number].sendall(b"PING\n")
        self._await(numbers, len(OK))

    def close(self, numbers: range) -> None:
        """Disconnects these."""
        for number in numbers:
            self.open.pop(number).close()

    def _await(self, numbers: range, size: int, identified: bool = False) -> None:
        """Reads this many bytes from each, and the answer to IDENTIFY before them."""
        watch = selectors.DefaultSelector()
        left: dict[int, int] = {}
        for number in numbers:
            left[number] = -1 if identified else size
            watch.register(self.open[number], selectors.EVENT_READ, number)
        while left:
            for key, _ in watch.select():
                number, sock = key.data, self.open[key.data]
                data = sock.recv(65536)
                if not data:
                    raise SystemExit(f"node {number} was refused")
                if left[number] < 0:
                    left[number] = size + 4 + int.from_bytes(data[:4], "big")
                left[number] -= len(data)
                if left[number] <= 0:
                    watch.unregister(sock)
                    del left[number]


class Iterations:
    """Replaces Pings: the measurements of watched.py."""

    def __init__(self, path: Path):
        self.path = path
        with path.open("r+b") as file:
            file.write(MEASURE.pack(0.0))

    def over(self) -> float:
        return float(MEASURE.unpack(self.path.read_bytes())[0])


def measured(server: Server, name: str, work: Callable[[], str], watched: Path | None) -> None:
    """Does the work and prints its line."""
    meanwhile = Pings(server) if watched is None else Iterations(watched)
    cpu, began = server.cpu(), time.monotonic()
    told = work()
    took = time.monotonic() - began
    longest = f"longest {'/ping' if watched is None else 'iteration'} {meanwhile.over() * 1e3:.1f} ms"
    print(f"{name:9} {took:7.3f} s  cpu {server.cpu() - cpu:6.2f} s  {longest:28}  rss {server.rss() / 1e6:4.0f} MB  "
          f"{told}", flush=True)


def lookups(server: Server, topics: int, count: int = LOOKUPS) -> str:
    """Median and 99th percentile of this many lookups."""
    connection = server.connection()
    times, size = [], 0
    for number in range(count):
        began = time.monotonic()
        size += len(get(connection, f"/lookup?topic=topic-{number * 37 % topics}"))
        times.append(time.monotonic() - began)
    times.sort()
    return (f"median {times[count // 2] * 1e3:.2f} ms, p99 {times[count * 99 // 100] * 1e3:.2f} ms, "
            f"{size // count} bytes each")


def run(arguments: argparse.Namespace) -> None:
    """All the work, in order."""
    count, each, topics = arguments.nodes, arguments.each, arguments.topics
    watched = None
    command = shlex.split(arguments.command)
    if arguments.watch:
        watched = Path(tempfile.mkstemp()[1])
        watched.write_bytes(MEASURE.pack(0.0))
        command = [sys.executable, "-m", "perf.lookupd.watched", str(watched)]
    server = Server(command)
    nodes = Nodes(server, each, topics)
    everyone = range(count)
    try:
        idle = server.rss()
        began = time.monotonic()
        nodes.connect(everyone)
        print(f"{count} nodes with {each} of {topics} topics each; idle {idle / 1e6:.0f} MB; connected in "
              f"{time.monotonic() - began:.1f} s, {server.rss() / 1e6:.0f} MB")

        def storm() -> str:
            began = time.monotonic()
            nodes.register(everyone)
            return f"{count * each / (time.monotonic() - began):.0f} registrations/s"

        def listed(path: str) -> Callable[[], str]:
            return lambda: f"{len(get(server.connection(), path))} bytes"

        def flapping() -> str:
            some = range(0, count, 10)
            found = []
            for _ in range(5):
                nodes.close(some)
                nodes.connect(some)
                nodes.register(some)
                found.append(lookups(server, topics, LOOKUPS // 5))
            return found[-1]

        def loss() -> str:
            began = time.monotonic()
            gone = range(0, count, 2)
            nodes.close(gone)
            closed = time.monotonic() - began
            connection = server.connection()
            while True:
                found = json.loads(get(connection, "/lookup?topic=topic-0"))["producers"]
                if all((one["http_port"] - FIRST_PORT) % 2 for one in found):
                    break
            took = time.monotonic() - began
            # Their remaining data is freed meanwhile.
            get(connection, "/topics")
            time.sleep(1.0)
            return f"closed in {closed:.3f} s, out of /lookup after {took:.3f} s"

        measured(server, "storm", storm, watched)
        measured(server, "lookup", lambda: lookups(server, topics), watched)
        measured(server, "ping", lambda: nodes.ping(everyone) or "", watched)
        for name in ("nodes", "topics", "debug"):
            if not arguments.quick or name == "nodes":
                measured(server, name, listed(f"/{name}"), watched)
        measured(server, "flapping", flapping, watched)
        measured(server, "loss", loss, watched)
    finally:
        server.process.terminate()
        server.process.wait()
        if watched is not None:
            watched.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="without /topics and /debug")
    parser.add_argument("--watch", action="store_true", help="measure loop iterations")
    parser.add_argument("--probe", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="?", default=f"{sys.executable} -m nsqc lookupd")
    given = parser.parse_args()
    if given.probe:
        probe(given.probe)
    else:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        run(given)
