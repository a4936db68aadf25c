"""Rates of the consuming tools compared with the load client, and of to-file compared with the disk.

    python -m perf.tools.run [--rounds 3] [--messages 2000000] [--size 200] [--output FOLDER] [--only to-file,...]

One daemon keeps everything in memory. In each round each program in turn fills and consumes its channel: the load
client, `nsqc tail` to /dev/null, `nsqc to-file` to a folder on disk and to one in memory (/dev/shm), `nsqc relay` to
the same daemon. A tool is connected before the channel is unpaused, so its start does not count; its time ends when
99% are finished: the last ones wait for to-file's --sync-interval. The disk's floor is one process that only writes the
same number of bytes in pieces and calls fdatasync after each: through the page cache or past it, whichever is faster.
Files stay until everything is measured. cpu: processor time of a tool.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import mmap
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from perf import programs
from perf.load.run import machine
from perf.load.server import Server, Side
from perf.load.work import MEMORY_ONLY, Bench, Scale

TOPIC, CHANNEL = "load", "ch"
POLL_S = 0.01           # each look costs the daemon half a millisecond, and the daemon limits the tools
MOST_S = 120.0
FLOOR_PIECE = 8 << 20
CLIENT, FLOOR = "client", "disk floor"
STOP_S = 30
REST = 0.01             # share of messages at which the time ends


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m perf.tools.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--messages", type=int, default=2_000_000, help="of each fill; default 2,000,000")
    parser.add_argument("--size", type=int, default=200, help="bytes of a message; default 200")
    parser.add_argument("--output", default=tempfile.gettempdir(), help="a folder on the disk to measure")
    parser.add_argument("--only", default="", help="comma-separated names of programs")
    parser.add_argument("--nsqc", default=f"{shlex.quote(sys.executable)} -m nsqc", metavar="CMD",
                        help="the tools; default: this tree's")
    parser.add_argument("--more", default="", metavar="FLAGS", help="more flags for to-file")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works, measures nothing")
    return parser.parse_args()


class Work:
    """One daemon, and its consumers. at_end: removes files late, because a disk that discards deleted data is busy with
    that for seconds."""

    def __init__(self, server: Server, bench: Bench, args: argparse.Namespace, at_end: contextlib.ExitStack):
        self._server, self._bench, self._args, self._at_end = server, bench, args, at_end
        self.cpu: dict[str, list[float]] = {}       # microseconds of processor time per message, by tool

    def fill(self) -> int:
        """Fills the channel; returns the number of messages."""
        return int(self._bench.load(self._server.tcp, "pub", "-t", 120, "-n", self._args.messages)["messages"])

    def client(self) -> float:
        """Messages a second of the load client."""
        return float(self._bench.load(self._server.tcp, "sub", "-t", 120, "-n", self.fill())["per_s"])

    def tool(self, *words: str) -> float:
        """Messages a second of `nsqc WORDS`."""
        count = self.fill()
        self._server.post(f"/channel/pause?topic={TOPIC}&channel={CHANNEL}")
        command = [*shlex.split(self._args.nsqc), *words, "--topic", TOPIC, "--channel", CHANNEL,
                   "--nsqd", f"127.0.0.1:{self._server.tcp}", "--http", f"127.0.0.1:{self._server.http}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, cwd=programs.ROOT)
        try:
            self._wait(lambda found: found["client_count"] > 0)
            time.sleep(0.3)     # the other connections
            self._server.post(f"/channel/unpause?topic={TOPIC}&channel={CHANNEL}")
            before, began = cpu_s(process.pid), time.perf_counter()
            left = self._wait(lambda found: found["depth"] + found["in_flight_count"] <= count * REST)
            seconds = time.perf_counter() - began
            count -= left["depth"] + left["in_flight_count"]
            used = cpu_s(process.pid) - before
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_S)
        self._server.post(f"/channel/empty?topic={TOPIC}&channel={CHANNEL}")
        self.cpu.setdefault(words[0], []).append(used / count * 1e6)
        return float(count / seconds)

    def _wait(self, is_done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:     # Any: JSON
        deadline = time.monotonic() + MOST_S
        while True:
            found: dict[str, Any] = self._server.get_stats(TOPIC)["channels"][0]
            if is_done(found):
                return found
            if time.monotonic() > deadline:
                raise SystemExit("a tool does not come to its end")
            time.sleep(POLL_S)

    def to_file(self, parent: str) -> float:
        """Messages a second that are synced and finished, in a folder of parent."""
        folder = tempfile.mkdtemp(dir=parent, prefix="nsqc-tools-")
        remove = functools.partial(shutil.rmtree, folder)
        if parent == self._args.output:
            self._at_end.callback(remove)
            return self.tool("to-file", "-o", folder, *shlex.split(self._args.more))
        try:
            return self.tool("to-file", "-o", folder, *shlex.split(self._args.more))
        finally:
            remove()

    def floor(self) -> float:
        """Messages a second of the bare disk."""
        return max(self._floor(flags) for flags in (0, os.O_DIRECT))

    def _floor(self, flags: int) -> float:
        size = self._args.size + 1
        pieces = max(self._args.messages * size // FLOOR_PIECE, 1)
        try:
            descriptor = os.open(self._args.output, os.O_TMPFILE | os.O_WRONLY | flags, 0o600)
        except OSError:
            if flags:
                return 0.0      # the file system does not write past the page cache
            raise
        self._at_end.callback(os.close, descriptor)
        with mmap.mmap(-1, FLOOR_PIECE) as memory:     # aligned
            began = time.perf_counter()
            for _ in range(pieces):
                if os.write(descriptor, memory) < FLOOR_PIECE:
                    raise SystemExit("the disk is full")
                os.fdatasync(descriptor)
            return float(pieces * FLOOR_PIECE / size / (time.perf_counter() - began))

    def relay(self) -> float:
        """Messages a second from the channel to another topic."""
        self._server.post("/topic/create?topic=copy")
        try:
            return self.tool("relay", "--to", f"127.0.0.1:{self._server.tcp}", "--to-topic", "copy")
        finally:
            self._server.post("/topic/delete?topic=copy")

    def programs(self) -> dict[str, Callable[[], float]]:
        """All of them by name."""
        found = {CLIENT: self.client, FLOOR: self.floor, "tail": lambda: self.tool("tail"),
                 "to-file": lambda: self.to_file(self._args.output),
                 "to-file in memory": lambda: self.to_file("/dev/shm"), "relay": self.relay}
        only = self._args.only.split(",") if self._args.only else found
        return {name: work for name, work in found.items() if name in only or name == CLIENT}


def main() -> int:
    """0: everything was measured."""
    args = arguments()
    if args.quick:
        args.rounds, args.messages = 1, 20_000
    print(machine())
    rates: dict[str, list[float]] = {}
    bench = Bench(programs.client(), Scale(size=args.size))
    bench.warm(args.messages)
    side = Side("nsqc", (*shlex.split(f"{shlex.quote(sys.executable)} -m nsqc serve"),))
    with contextlib.ExitStack() as at_end, Server(side, MEMORY_ONLY) as server:
        server.channel(TOPIC, CHANNEL)
        this = Work(server, bench, args, at_end)
        ways = this.programs()
        floor = ways.pop(FLOOR, None)
        for _ in range(args.rounds):
            for name, work in ways.items():
                rates.setdefault(name, []).append(work())
        if floor is not None:       # at the end: the disk stays busy with its files for some time
            rates[FLOOR] = [floor() for _ in range(args.rounds)]
    print(f"{'messages/s':>18} {'median':>11} {'of client':>9} {'of disk':>8}  rounds")
    for name, found in rates.items():
        print(f"{name:>18} {statistics.median(found):11,.0f} {ratio(found, rates[CLIENT]):9.2f} "
              f"{ratio(found, rates[FLOOR]) if FLOOR in rates else 0:8.2f}  "
              + " ".join(f"{rate / 1e6:.2f}" for rate in found))
    for name, used in this.cpu.items():
        print(f"{name:>18}: {statistics.median(used):.3f} us of processor time for a message")
    return 0


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, all threads, in seconds."""
    return time.clock_gettime((~pid << 3) | 2)      # the kernel's clock of another process: clock_getcpuclockid(3)


def ratio(found: list[float], base: list[float]) -> float:
    """The median of the ratios within the rounds."""
    return statistics.median(one / other for one, other in zip(found, base, strict=True))


if __name__ == "__main__":
    sys.exit(main())
