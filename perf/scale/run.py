"""Measures many topics: a start, new topics, changes of one of them, and statistics of all.

    python -m perf.scale.run [--topics 20000] [COMMAND]

COMMAND gets nsqd's flags appended, so another daemon can be measured, too. Each line has the work, the time it took,
and the longest /ping meanwhile on a separate connection.

    start       from the process to the first answer, with that many topics with a channel and 3 messages each on disk
    kill        the same after a kill -9
    publish     one write with a PUB to each of as many new topics, beside the files of the others; until the last OK
    create, pause, delete
                of one topic with a channel over HTTP, 50 times; the median
    stats       /stats?format=json of all
    stop        SIGTERM until it is gone
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shlex
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from perf import programs
from perf.stalls.stage import Program
from tests.support.ports import free_port

WAIT_S = 300.0
REPEATS = 50


class Node:
    """One daemon on a data path."""

    def __init__(self, command: list[str], folder: str):
        self.command = command
        self.folder = folder
        self.start()

    def start(self) -> None:
        """Returns when /ping is answered; started_s is the time it took, cpu_s the CPU time."""
        self.tcp, self.http = free_port(), free_port()
        began = time.monotonic()
        self.process = subprocess.Popen(
            [*self.command, f"--http-address=127.0.0.1:{self.http}", f"--tcp-address=127.0.0.1:{self.tcp}",
             f"--data-path={self.folder}", "--mem-queue-size=0"], stderr=subprocess.DEVNULL)
        while True:
            try:
                self.call("GET", "/ping")
                break
            except ConnectionError:
                if self.process.poll() is not None or time.monotonic() - began > WAIT_S:
                    raise SystemExit("the daemon does not start") from None
                time.sleep(0.005)
        self.started_s = time.monotonic() - began
        self.cpu_s = self.used_s()

    def used_s(self) -> float:
        """Processor time so far."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, number: int) -> float:
        """Ends it with a signal; returns the seconds until it has ended."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(WAIT_S)
        return time.monotonic() - began

    def connection(self) -> http.client.HTTPConnection:
        """A keep-alive connection."""
        return http.client.HTTPConnection("127.0.0.1", self.http, timeout=WAIT_S)

    def call(self, method: str, path: str, over: http.client.HTTPConnection | None = None) -> bytes:
        """One request that must succeed."""
        connection = over or self.connection()
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        if over is None:
            connection.close()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {body[:200]!r}")
        return body


def publish(node: Node, topics: range, bodies: int) -> None:
    """bodies PUBs to each topic, in one write; waits for every OK."""
    with socket.create_connection(("127.0.0.1", node.tcp), WAIT_S) as sock:
        sock.sendall(b"  V2" + b"".join(b"PUB t%d\n" % n + struct.pack(">i", 200) + bytes(200)
                                        for n in topics for _ in range(bodies)))
        left = len(topics) * bodies * 10
        while left > 0:
            data = sock.recv(1 << 20)
            if not data or b"E_" in data:
                raise SystemExit(f"publishing ended: {data[:200]!r}")
            left -= len(data)


def watched(node: Node, work: Callable[[], object]) -> tuple[float, float]:
    """(seconds of work, longest /ping meanwhile)."""
    # A separate process: a thread of this one would wait for the interpreter, too.
    pings = Program(programs.client(), "ping", "-p", node.http)
    try:
        pings.ready()
        began = time.monotonic()
        work()
        seconds = time.monotonic() - began
        return seconds, pings.end()["max_ms"] / 1000
    finally:
        pings.close()


def report(name: str, seconds: float, longest_s: float = 0.0, cpu_s: float = 0.0) -> None:
    """Prints one line of results."""
    more = f"   longest /ping {longest_s * 1000:7.1f} ms" if longest_s else ""
    if cpu_s:
        more = f"   CPU {cpu_s:7.2f} s"
    print(f"{name:<24} {seconds:9.4f} s{more}", flush=True)


def changes(node: Node) -> None:
    """Creates, pauses and deletes one topic repeatedly."""
    connection = node.connection()
    steps = {"create topic": "/topic/create?topic=extra", "create channel": "/channel/create?topic=extra&channel=c",
             "pause topic": "/topic/pause?topic=extra", "delete channel": "/channel/delete?topic=extra&channel=c",
             "delete topic": "/topic/delete?topic=extra"}
    durations: dict[str, list[float]] = {name: [] for name in steps}

    def work() -> None:
        for _ in range(REPEATS):
            for name, path in steps.items():
                began = time.monotonic()
                node.call("POST", path, connection)
                durations[name].append(time.monotonic() - began)

    _, longest = watched(node, work)
    for name, times in durations.items():
        report(name, statistics.median(times), longest)


def check(node: Node, topics: int, messages: int) -> None:
    """Fails unless all topics and messages exist."""
    topics_stats = json.loads(node.call("GET", "/stats?format=json&include_clients=false"))["topics"]
    count = sum(topic["depth"] + sum(channel["depth"] for channel in topic["channels"]) for topic in topics_stats)
    if (len(topics_stats), count) != (topics, messages):
        raise SystemExit(f"{len(topics_stats)} topics with {count} messages instead of {topics} with {messages}")


def main() -> None:
    """Prints a line for each piece of work."""
    parser = argparse.ArgumentParser(prog="python -m perf.scale.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", default=f"{sys.executable} -m nsqc serve --max-create-rate=0")
    parser.add_argument("--topics", type=int, default=20_000)
    given = parser.parse_args()
    count = given.topics
    with tempfile.TemporaryDirectory() as folder:
        node = Node(shlex.split(given.command), folder)
        print(f"load average {os.getloadavg()[0]:.1f}, {count} topics")
        try:
            report("publish, empty path", *watched(node, lambda: publish(node, range(count), 1)))
            connection = node.connection()
            for n in range(count):
                node.call("POST", f"/channel/create?topic=t{n}&channel=c", connection)
            publish(node, range(count), 2)
            check(node, count, 3 * count)
            report("stop", node.end(signal.SIGTERM))
            print(f"{len(list(Path(folder).iterdir()))} files")
            node.start()
            report("start", node.started_s, cpu_s=node.cpu_s)
            check(node, count, 3 * count)
            node.end(signal.SIGKILL)
            node.start()
            report("start after a kill", node.started_s, cpu_s=node.cpu_s)
            check(node, count, 3 * count)
            changes(node)
            report("stats", *watched(node, lambda: node.call("GET", "/stats?format=json")))
            report("publish, new topics", *watched(node, lambda: publish(node, range(count, 2 * count), 1)))
            check(node, 2 * count, 4 * count)
        finally:
            if node.process.poll() is None:
                node.end(signal.SIGKILL)


if __name__ == "__main__":
    main()
