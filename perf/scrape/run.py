"""Measures the cost of a scrape of many topics for the daemon.

    python -m perf.scrape.run [--topics 20000] [--channels 3]

Creates the topics, then requests /metrics, with idle channels and after each channel has delivered a message, so every
histogram exists. Each line has the bytes and the time of a scrape, the processor time of the loop's thread and of all
threads meanwhile, the longest callback of the loop, and, for another scrape, the longest /ping during it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import struct
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from perf.scale.run import Node, watched

REPEATS = 5
OTHERS = ("'Daemon._tick'",)    # unrelated callbacks


def cpu_ns(node: Node, thread: int | None = None) -> int:
    """Processor time of a thread; of all without one."""
    folder = Path(f"/proc/{node.process.pid}/task")
    total = 0
    for name in [str(thread)] if thread else os.listdir(folder):
        with suppress(FileNotFoundError, ProcessLookupError):   # it has ended
            total += int((folder / name / "schedstat").read_text().split()[0])
    return total


def scrape(node: Node, lines: Path, name: str, accept: str = "text/plain") -> None:
    """Prints a line for each pair of scrapes: one alone, and one with a client that waits for the loop."""
    for _ in range(REPEATS):
        time.sleep(0.1)
        before, all_before, began = cpu_ns(node, node.process.pid), cpu_ns(node), time.monotonic()
        size = get(node, accept)
        took = time.monotonic() - began
        loop, both = cpu_ns(node, node.process.pid) - before, cpu_ns(node) - all_before
        # Alone: each /ping would count as the loop's work, and takes a tenth of a millisecond.
        _, longest_s = watched(node, lambda: get(node, accept))
        rows = [line.split() for line in lines.read_text().splitlines()]
        own = [int(row[1]) for row in rows if len(row) > 2 and began <= float(row[0]) <= began + took
               and row[2] not in OTHERS]
        print(f"{name:<16} {size / 1e6:7.1f} MB {took * 1000:8.1f} ms   loop {loop / 1e6:6.1f} ms of "
              f"{both / 1e6:6.1f}, callbacks of the scrape {sum(own) / 1e6:5.1f}, the longest "
              f"{max(own, default=0) / 1e6:4.2f}   longest /ping {longest_s * 1000:5.1f} ms", flush=True)


def get(node: Node, accept: str) -> int:
    """Bytes of a page."""
    connection = node.connection()
    connection.request("GET", "/metrics", headers={"Accept": accept})
    answer = connection.getresponse()
    size = 0
    while data := answer.read(1 << 20):
        size += len(data)
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"/metrics: {answer.status}")
    return size


def command(body: bytes) -> bytes:
    """A body preceded by its size."""
    return struct.pack(">i", len(body)) + body


def make(node: Node, topics: int, channels: int) -> None:
    """The topics with their channels."""
    connection = node.connection()
    for topic in range(topics):
        node.call("POST", f"/topic/create?topic=orders.{topic}", connection)
        for channel in range(channels):
            node.call("POST", f"/channel/create?topic=orders.{topic}&channel=worker-{channel}", connection)


def deliver(node: Node, topics: int, channels: int) -> None:
    """A message through each channel."""
    with socket.create_connection(("127.0.0.1", node.tcp)) as sock:
        sock.sendall(b"  V2" + b"".join(b"PUB orders.%d\n" % topic + command(b"x" * 200) for topic in range(topics)))
        left = topics * 10
        while left:
            left -= len(sock.recv(min(left, 1 << 20)))
    for topic in range(topics):
        for channel in range(channels):
            with socket.create_connection(("127.0.0.1", node.tcp)) as sock:
                sock.sendall(b"  V2SUB orders.%d worker-%d\nRDY 1\n" % (topic, channel))
                got = b""
                while len(got) < 10 + 34 + 200:
                    got += sock.recv(1000)
                sock.sendall(b"FIN %b\nCLS\n" % got[28:44])
                sock.recv(100)


def main() -> None:
    """Prints the lines."""
    parser = argparse.ArgumentParser(prog="python -m perf.scrape.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=20_000)
    parser.add_argument("--channels", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "lines")
        data = Path(folder, "data")
        data.mkdir()
        node = Node(shlex.split(f"{sys.executable} -m perf.scrape.timed {lines} --max-create-rate=0"), str(data))
        try:
            make(node, given.topics, given.channels)
            print(f"load average {os.getloadavg()[0]:.1f}, {given.topics} topics with {given.channels} channels each")
            scrape(node, lines, "idle channels")
            deliver(node, given.topics, given.channels)
            scrape(node, lines, "all histograms")
            scrape(node, lines, "OpenMetrics", "application/openmetrics-text")
        finally:
            node.end(signal.SIGKILL)


if __name__ == "__main__":
    main()
