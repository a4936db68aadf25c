"""Measures the memory and disk space of a message, topic, channel and connection, one after the other, and compares
them with docs/operations.md.

    python -m perf.capacity [--quick] [--json]
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
BODY = 200
SETTLE_S = 1.0
READY_S = 60
RULE = b'{"storage": "log"}'
PAGE = ROOT / "docs" / "operations.md"
# A cost above the page's by more than this is a miss: allocators and machines differ.
MARGIN, MARGIN_BYTES = 1.25, 16


class Scale(NamedTuple):
    """The number of each to create."""

    messages: int
    topics: int
    connections: int


FULL, QUICK = Scale(1_000_000, 5_000, 5_000), Scale(100_000, 500, 500)


class Node:
    """A daemon with its own data path."""

    def __init__(self, folder: str, *flags: str):
        words = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", f"--data-path={folder}", *flags]
        self.folder = Path(folder)
        self.log = self.folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "nsqc", "serve", *words], cwd=ROOT, stderr=log)
        deadline = time.monotonic() + READY_S
        ports: dict[str, int] = {}
        while len(ports) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
            lines = [line for line in self.log.read_text().splitlines() if ": listening on " in line]
            ports = {line.split(": listening on ")[0].split()[-1]: int(line.rsplit(":", 1)[1]) for line in lines}
        self.tcp, self.http = ports["TCP"], ports["HTTP"]

    def call(self, method: str, path: str, body: bytes = b"") -> None:
        """A call that must succeed."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}{path}", body, method=method)
        with urllib.request.urlopen(request) as answer:
            answer.read()

    def make(self, topic: str, *channels: str) -> None:
        """Creates a topic and channels of it."""
        self.call("POST", f"/topic/create?topic={topic}")
        for channel in channels:
            self.call("POST", f"/channel/create?topic={topic}&channel={channel}")

    def publish(self, topic: str, count: int) -> None:
        """Publishes messages of BODY bytes."""
        batch = 1_000
        one = struct.pack(">i", BODY) + b"x" * BODY
        for _ in range(count // batch):
            self.call("POST", f"/mpub?topic={topic}&binary=true", struct.pack(">i", batch) + one * batch)

    def memory(self) -> int:
        """Resident memory, once it has settled, bytes."""
        time.sleep(SETTLE_S)
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def disk(self) -> int:
        """Allocated bytes of all files but the log."""
        files = (path for path in self.folder.rglob("*") if path.is_file() and path != self.log)
        return sum(path.stat().st_blocks * 512 for path in files)

    def connect(self, channel: str = "") -> socket.socket:
        """A client that has identified itself, or subscribed."""
        client = socket.create_connection(("127.0.0.1", self.tcp))
        body = b'{"client_id":"x","heartbeat_interval":60000}'
        words = f"SUB c {channel}\n".encode() if channel else b""
        client.sendall(b"  V2IDENTIFY\n" + struct.pack(">i", len(body)) + body + words)
        for _ in range(2 if channel else 1):
            size, = struct.unpack(">i", received(client, 4))
            answer = received(client, size)
            if not answer.endswith(b"OK"):
                raise SystemExit(f"no measurement: {answer!r}")
        return client

    def stop(self) -> None:
        """Stops it with SIGTERM."""
        self.process.terminate()
        self.process.wait()


def received(client: socket.socket, size: int) -> bytes:
    """Reads exactly this many bytes."""
    data = b""
    while len(data) < size:
        data += client.recv(size - len(data))
    return data


@contextlib.contextmanager
def node(*flags: str) -> Iterator[Node]:
    """A daemon, stopped and removed at the end."""
    folder = tempfile.mkdtemp(prefix="nsqc-capacity-")
    made = Node(folder, "--max-create-rate=0", "--mem-queue-size=10000000", *flags)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


def messages(scale: Scale) -> dict[str, float]:
    """A message of BODY bytes: its memory, the memory of each further channel, its size on disk, and the memory of one
    that is deferred."""
    found = {}
    held = []
    for channels in (("a",), ("a", "b", "c")):
        with node() as one:
            one.make("m", *channels)
            before = one.memory()
            one.publish("m", scale.messages)
            held.append((one.memory() - before) / scale.messages)
    found["message_in_memory"] = held[0]
    found["message_in_another_channel"] = (held[1] - held[0]) / 2
    with node("--mem-queue-size=0") as one:
        one.make("m")
        memory, disk = one.memory(), one.disk()
        one.publish("m", scale.messages)
        found["message_on_disk"] = (one.disk() - disk) / scale.messages
        found["message_on_disk_memory"] = max(0, one.memory() - memory) / scale.messages
    with node() as one:
        one.call("PUT", "/topic/rules?topic=m", RULE)
        one.make("m", "a")
        disk = one.disk()
        one.publish("m", scale.messages)
        found["message_in_a_log"] = (one.disk() - disk) / scale.messages
    with node("--topic-storage=log") as one:
        one.make("m", "a")
        before = one.memory()
        with one.connect() as client:
            command = b"DPUB m 3600000\n" + struct.pack(">i", BODY) + b"x" * BODY
            for _ in range(scale.messages // 1_000):
                client.sendall(command * 1_000)
                received(client, 10 * 1_000)
        found["deferred_message_in_a_log"] = (one.memory() - before) / scale.messages
    return found


def names(scale: Scale) -> dict[str, float]:
    """A topic, a channel, and a log-backed topic."""
    found = {}
    with node() as one:
        before = one.memory()
        for number in range(scale.topics):
            one.call("POST", f"/topic/create?topic=t{number}")
        topics = one.memory()
        found["topic"] = (topics - before) / scale.topics
        for number in range(scale.topics):
            one.call("POST", f"/channel/create?topic=t{number}&channel=c")
        found["channel"] = (one.memory() - topics) / scale.topics
    with node("--topic-storage=log") as one:
        before = one.memory()
        for number in range(scale.topics):
            one.make(f"t{number}", "c")
        found["topic_in_a_log_with_a_channel"] = (one.memory() - before) / scale.topics
    return found


def connections(scale: Scale) -> dict[str, float]:
    """A producer and a consumer."""
    found = {}
    for kind, channel in (("producer", ""), ("consumer", "d")):
        with node() as one:
            before = one.memory()
            clients = [one.connect(channel) for _ in range(scale.connections)]
            found[kind] = (one.memory() - before) / scale.connections
            for client in clients:
                client.close()
    return found


def costs_of_page() -> dict[str, float]:
    """The costs that the page tells, bytes."""
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([\d,.]+) \|", PAGE.read_text(), re.MULTILINE)
    return {name: float(number.replace(",", "")) for name, number in rows}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else FULL
    found = {**messages(scale), **names(scale), **connections(scale)}
    if arguments.json:
        print(json.dumps(found))
        return
    page = costs_of_page()
    for name, cost in found.items():
        told = page.get(name, 0.0)
        # A quick measurement spreads the daemon's own memory over fewer messages.
        verdict = "" if arguments.quick else ": ok" if cost <= MARGIN * told + MARGIN_BYTES else ": MISSED"
        print(f"{name:32} {cost:10,.0f} bytes (page {told:,.0f}{verdict})")


if __name__ == "__main__":
    main()
