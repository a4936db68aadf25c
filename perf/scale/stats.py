"""Measures how long /stats of many topics and channels blocks the loop.

    python -m perf.scale.stats [--topics 20000] [--channels 3] [--clients 200] [COMMAND]

Each line has a request, its duration, the size of its answer, the longest /ping meanwhile on a kept connection, and the
longest iteration of the loop as the daemon has measured it (/debug/slow: only the worst of each minute), and the time
stolen by the host meanwhile, which lengthens all of them.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

from perf.scale.run import WAIT_S, Node, publish, watched

PIPELINED = 500
SETTLE_S = 60
IDLE_S = 0.05
REQUESTS = {
    "text": "/stats",
    "text, no clients": "/stats?include_clients=false",
    "JSON": "/stats?format=json",
    "JSON, no clients": "/stats?format=json&include_clients=false",
    "JSON of a channel": "/stats?format=json&channel=c1",
    "text of a topic": "/stats?topic=t7",
    "JSON of a topic": "/stats?format=json&topic=t7",
}
TOOK = re.compile(r"took ([\d.]+) ms, .* of it in HTTP GET (\S+)")


def create(node: Node, topics: int, channels: int) -> None:
    """Creates all of them, by pipelined requests."""
    paths = [b"/topic/create?topic=t%d" % n for n in range(topics)]
    paths += [b"/channel/create?topic=t%d&channel=c%d" % (n, c) for n in range(topics) for c in range(channels)]
    with socket.create_connection(("127.0.0.1", node.http), WAIT_S) as sock:
        for at in range(0, len(paths), PIPELINED):
            part = paths[at:at + PIPELINED]
            sock.sendall(b"".join(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % path for path in part))
            answers = b""
            while answers.count(b"\r\n\r\n") < len(part):
                answers += sock.recv(1 << 20)
            if answers.count(b" 200 OK") != len(part):
                raise SystemExit(f"creating has failed: {answers[:200]!r}")


def stolen_s() -> float:
    """Steal time: other machines on this host ran while this one wanted to."""
    words = Path("/proc/stat").read_text().split()
    return int(words[8]) / os.sysconf("SC_CLK_TCK")


def longest_ms(node: Node, path: str) -> float:
    """The longest iteration with that request, as the daemon reports it: the worst of each minute."""
    page = node.call("GET", "/debug/slow").decode()
    return max((float(took) for took, target in TOOK.findall(page) if target == path), default=0.0)


def settle(node: Node) -> None:
    """Waits until the work left by creating topics is done: a second with hardly any processor time."""
    used = node.used_s()
    for _ in range(SETTLE_S):
        time.sleep(1)
        before, used = used, node.used_s()
        if used - before < IDLE_S:
            return
    print(f"the daemon is still busy after {SETTLE_S} s", flush=True)


def main() -> None:
    """Prints a line for each request."""
    parser = argparse.ArgumentParser(prog="python -m perf.scale.stats", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", default=f"{sys.executable} -m nsqc serve")
    parser.add_argument("--topics", type=int, default=20_000)
    parser.add_argument("--channels", type=int, default=3)
    parser.add_argument("--clients", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        node = Node([*shlex.split(given.command), "--slow-loop=1ms", "--max-create-rate=0"], folder)
        try:
            create(node, given.topics, given.channels)
            clients = [socket.create_connection(("127.0.0.1", node.tcp), WAIT_S) for _ in range(given.clients)]
            for number, client in enumerate(clients):
                client.sendall(b"  V2SUB t%d c0\n" % (number % given.topics))
            publish(node, range(0, given.topics, max(1, given.topics // 100)), 1)
            settle(node)
            print(f"load average {os.getloadavg()[0]:.1f}, {given.topics} topics with {given.channels} channels, "
                  f"{given.clients} clients", flush=True)
            for name, path in REQUESTS.items():
                for _ in range(2):
                    size = 0

                    def ask(path: str = path) -> None:
                        nonlocal size
                        size = len(node.call("GET", path))

                    before = stolen_s()
                    seconds, ping = watched(node, ask)
                    stolen = stolen_s() - before
                print(f"{name:<20} {seconds * 1000:8.0f} ms {size:10d} bytes   longest /ping {ping * 1000:6.1f} ms   "
                      f"longest iteration {longest_ms(node, path):6.1f} ms   stolen {stolen * 1000:3.0f} ms",
                      flush=True)
            print(node.call("GET", "/debug/slow").decode())
        finally:
            if node.process.poll() is None:
                node.end(signal.SIGKILL)


if __name__ == "__main__":
    main()
