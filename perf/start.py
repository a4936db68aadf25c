"""Measures the time from start to the first answer to GET /ping, beside the imports it needs, and memory.

    python -m perf.start [--runs 25] [COMMAND ...]

Each COMMAND gets nsqd's flags appended ("dist/nsqc serve"); the default is this interpreter's `python -m nsqc serve`.
They alternate on empty data paths, and so does `python -c "import uvloop, msgspec"` from start to exit: the daemon's
base. Prints medians, their ratio, and the memory of the process and its children half a second after the first answer:
VmRSS, and PSS, which divides shared memory by the number of processes that share it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.ports import free_port

WAIT_S = 60.0
POLL_S = 0.002  # polling more often would take CPU time from the daemon
IDLE_S = 0.5
BASE = (sys.executable, "-c", "import uvloop, msgspec")
MOST_RATIO = 1.6
MOST_RSS = 30e6  # bytes


class Run(NamedTuple):
    """One start: seconds to the first answer, and bytes then."""

    seconds: float
    rss: int
    pss: int


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


def memory(pid: int) -> tuple[int, int]:
    """Resident and proportional bytes of a process and its children."""
    sizes = {name: int(value.split()[0]) * 1024 for name, _, value in
             (line.partition(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])}
    both = sizes["Rss"], sizes["Pss"]
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        both = tuple(map(sum, zip(both, memory(int(child)), strict=True)))
    return both


def start(command: list[str]) -> Run:
    """Starts a daemon and measures it up to its first answer, then its memory."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        words = [*command, f"--http-address=127.0.0.1:{port}", "--tcp-address=127.0.0.1:0", f"--data-path={folder}"]
        began = time.monotonic()
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        try:
            until_ping(port)
            seconds = time.monotonic() - began
            time.sleep(IDLE_S)
            return Run(seconds, *memory(process.pid))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def base() -> float:
    """Seconds that the interpreter, the loop and the JSON codec take alone."""
    began = time.monotonic()
    subprocess.run(BASE, check=True)
    return time.monotonic() - began


def spread(values: list[float]) -> str:
    """Milliseconds: the median, and the range."""
    return (f"median {1000 * statistics.median(values):.0f} ms, from {1000 * min(values):.0f} to "
            f"{1000 * max(values):.0f}")


def main() -> None:
    """Prints a line for the base, and two for each command."""
    parser = argparse.ArgumentParser(prog="python -m perf.start", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", metavar="COMMAND", default=[f"{sys.executable} -m nsqc serve"])
    parser.add_argument("--runs", type=int, default=25)
    given = parser.parse_args()
    bases: list[float] = []
    starts: dict[str, list[Run]] = {command: [] for command in given.commands}
    for _ in range(given.runs):
        bases.append(base())
        for command in given.commands:
            starts[command].append(start(shlex.split(command)))
    least = statistics.median(bases)
    print(f"load average {os.getloadavg()[0]:.1f}, {given.runs} alternating runs")
    print(f"{shlex.join(BASE)}: {spread(bases)}")
    for command, runs in starts.items():
        seconds = [run.seconds for run in runs]
        ratio = statistics.median(seconds) / least
        rss, pss = (statistics.median(run[at] for run in runs) for at in (1, 2))
        print(f"{command}: {spread(seconds)}")
        print(f"  {ratio:.2f} x (bar {MOST_RATIO}: {verdict(ratio <= MOST_RATIO)}); VmRSS {rss / 1e6:.1f} MB "
              f"(bar {MOST_RSS / 1e6:.0f}: {verdict(rss <= MOST_RSS)}), PSS {pss / 1e6:.1f} MB")


def verdict(good: bool) -> str:
    """How the table reports a bar."""
    return "ok" if good else "MISSED"


if __name__ == "__main__":
    main()
