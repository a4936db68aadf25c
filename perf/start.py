"""From the start of a process to its first answer to GET /ping, and the memory it then has.

    python -m perf.start [--runs 15] COMMAND ...

Each COMMAND gets nsqd's flags behind it ("dist/nsqc serve"). They are run in turns, on empty data paths. Memory is what
is resident of the process and its children.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

WAIT_S = 20.0
POLL_S = 0.001


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def until_ping(port: int) -> None:
    """Returns when /ping is answered."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as client:
                client.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
                if b"200 OK" in client.recv(1000):
                    return
        except ConnectionError:
            time.sleep(POLL_S)
    raise SystemExit(f"no answer to /ping in {WAIT_S} s")


def memory_kb(pid: int) -> int:
    """Resident, of a process and its children, kilobytes."""
    total = sum(int(line.split()[1]) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                if line.startswith("Rss:"))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return total + sum(memory_kb(int(child)) for child in children)


def once(command: list[str]) -> tuple[float, int]:
    """Seconds to the first answer, and kilobytes then."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        words = [*command, f"--http-address=127.0.0.1:{port}", "--tcp-address=127.0.0.1:0", f"--data-path={folder}"]
        began = time.monotonic()
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        try:
            until_ping(port)
            return time.monotonic() - began, memory_kb(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def main() -> None:
    """Prints a row for each command."""
    parser = argparse.ArgumentParser(prog="python -m perf.start", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+", metavar="COMMAND")
    parser.add_argument("--runs", type=int, default=15)
    given = parser.parse_args()
    found: dict[str, list[tuple[float, int]]] = {command: [] for command in given.commands}
    for _ in range(given.runs):
        for command in given.commands:
            found[command].append(once(shlex.split(command)))
    print(f"load average {os.getloadavg()[0]:.1f}, {given.runs} runs in turns")
    for command, runs in found.items():
        times = sorted(seconds for seconds, _ in runs)
        print(f"{command}: median {statistics.median(times):.3f} s, from {times[0]:.3f} to {times[-1]:.3f}; "
              f"{statistics.median(kb for _, kb in runs) / 1024:.1f} MiB")


if __name__ == "__main__":
    main()
