"""Rates and memory by size of body: `python -m perf.sizes.run [--nsqd PATH] [--rounds 3] [--sizes 100,1024,...]`.

For each size, each side on a fresh server, with alternating order:

    publish   MPUBs of up to 1 MiB on two connections into a queue that grows, in memory that another process has just
              used and freed
    cold      the same 8 idle seconds after the start, in memory that nothing has used lately; ping: the longest wait
              of a GET /ping that is due every 2 ms meanwhile (milliseconds)
    default   the same with nsqd's default flags: all but 10,000 messages go to disk
    memory    resident bytes that this took, for each byte of the records (30 bytes more than the body)
    consume   that queue by one connection, RDY 2500, with FIN
    steady    one connection publishes while another consumes: arrived messages, and those left in the queue

Sides: nsqc, perf/floor/copying.c (one core that copies each body once into its own memory and sends it from there), and
nsqd if --nsqd has its path. A result is the median over the rounds, a ratio the median of those within the rounds.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from perf import programs
from perf.load.run import machine
from perf.load.server import Server, Side

NSQC, FLOOR, NSQD = "nsqc", "floor", "nsqd"
SIZES = (100, 1024, 4096, 10240, 65536)
FILL_BYTES = 1 << 30
MOST_MESSAGES = 4_000_000
BATCH_BYTES = 1 << 20
MOST_BATCH = 200
RECORD_BYTES = 30       # of a message beside its body, as in a disk queue's record
STEADY_S = 3.0
BAR_NSQD, BAR_FLOOR, BAR_MEMORY, BAR_PING_MS = 2.0, 0.5, 1.15, 5.0
BARS_NSQD = {"cold": 1.2, "default": 5.0}
IDLE_S = 8.0
KEYS = ("publish", "cold", "default", "consume", "steady")
QUEUES = ("cold", "default")    # only for servers with a queue

Results = dict[str, float]


class Work:
    """The work for one side and one size."""

    def __init__(self, size: int, quick: bool):
        self.client = str(programs.client())
        self.size = size
        self.batch = max(1, min(MOST_BATCH, BATCH_BYTES // size))
        self.count = min(MOST_MESSAGES, FILL_BYTES // size) // (50 if quick else 1)
        self.seconds = 0.3 if quick else STEADY_S
        self.idle = 0.0 if quick else IDLE_S

    def start(self, server: Server, mode: str, *options: object) -> subprocess.Popen[str]:
        """Starts the load client."""
        command = [self.client, mode, "-p", str(server.tcp), "-s", str(self.size), "-b", str(self.batch),
                   *map(str, options)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    @staticmethod
    def ended(process: subprocess.Popen[str]) -> dict:
        """The load client's result. Raises RuntimeError."""
        out = process.communicate(timeout=300)[0]
        if process.returncode:
            raise RuntimeError(f"the load client failed: {process.args}")
        return json.loads(out)

    def publish(self, server: Server) -> dict:
        """Publishes all messages; returns the load client's result."""
        server.channel("load", "ch")
        return self.ended(self.start(server, "pub", "-c", 2, "-w", 4, "-t", 120, "-n", self.count))

    def growing(self, side: Side) -> Results:
        """Publishing into memory that was not used lately, and to disk."""
        if not side.queues:
            return {}
        results = {}
        with Server(side, f"--mem-queue-size={2 * self.count}") as server:
            time.sleep(self.idle)
            ping = subprocess.Popen([self.client, "ping", "-p", str(server.http)], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, text=True)
            results["cold"] = self.publish(server)["per_s"]
            results["ping"] = json.loads(ping.communicate()[0].splitlines()[-1])["max_ms"]
        with Server(side) as server:
            results["default"] = self.publish(server)["per_s"]
        return results

    def run(self, side: Side) -> Results:
        """All results of a side, by metric."""
        results = self.growing(side)
        touched = (self.count * (self.size + 200)) // 4096 + 1
        subprocess.run([self.client, "touch", "-n", str(touched), "-s", "4096"], check=True, stdout=subprocess.DEVNULL)
        with Server(side, f"--mem-queue-size={2 * self.count}") as server:
            resident, cpu = server.resident(), server.cpu_s()
            done = self.publish(server)
            results["publish"] = done["per_s"]
            results["publish cpu"] = (server.cpu_s() - cpu) / done["messages"] * 1e6
            count = done["messages"]
            results["memory"] = (server.resident() - resident) / (count * (self.size + RECORD_BYTES))
            cpu = server.cpu_s()
            done = self.ended(self.start(server, "sub", "-c", 1, "-r", 2500, "-t", 120, "-n", count))
            if done["messages"] < count:
                raise RuntimeError(f"{side.name}: drained {done['messages']} of {count} messages")
            results["consume"] = done["per_s"]
            results["consume cpu"] = (server.cpu_s() - cpu) / count * 1e6
        with Server(side, f"--mem-queue-size={20 * self.count}") as server:
            server.channel("load", "ch")
            consumer = self.start(server, "sub", "-c", 1, "-r", 2500, "-t", self.seconds + 60)
            time.sleep(0.2)
            cpu = server.cpu_s()
            publisher = self.start(server, "pub", "-c", 1, "-w", 4, "-t", self.seconds)
            published = self.ended(publisher)
            results["left"] = depth(server) if side.queues else 0.0
            consumed = self.ended(consumer)
            if consumed["messages"] < published["messages"]:
                raise RuntimeError(f"{side.name}: {consumed['messages']} of {published['messages']} arrived")
            # Until the last message has arrived: messages left in the queue count with the time they took.
            results["steady"] = consumed["messages"] / (consumed["seconds"] - 0.2)
            results["steady cpu"] = (server.cpu_s() - cpu) / consumed["messages"] * 1e6
        return results


def depth(server: Server) -> float:
    """Messages waiting in the channel."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http}/stats?format=json&topic=load") as answer:
        return json.load(answer)["topics"][0]["channels"][0]["depth"]


def sides_of(args: argparse.Namespace) -> list[Side]:
    """nsqc, the floor, and nsqd if its path is known."""
    sides = [Side(NSQC, tuple(shlex.split(args.nsqc))), Side(FLOOR, (str(programs.floor()), "--copy"), queues=False)]
    if args.nsqd:
        sides.append(Side(NSQD, (args.nsqd,)))
    return sides


def middle(rounds: list[dict[str, Results]], side: str, key: str) -> float:
    """The median of a metric over the rounds."""
    return statistics.median(done[side][key] for done in rounds)


def ratio(rounds: list[dict[str, Results]], other: str, key: str) -> float | None:
    """nsqc's value relative to another side's, median of the rounds; None if that side was not measured."""
    if other not in rounds[0] or key not in rounds[0][other]:
        return None
    return statistics.median(done[NSQC][key] / done[other][key] for done in rounds)


def rows(size: int, rounds: list[dict[str, Results]]) -> list[list[str]]:
    """The lines of the table for one size."""
    def show(value: float | None, digits: int = 2) -> str:
        return "" if value is None else f"{value:,.{digits}f}"

    lines = []
    for key in KEYS:
        by_floor, by_nsqd = ratio(rounds, FLOOR, key), ratio(rounds, NSQD, key)
        rates = [middle(rounds, side, key) if key in rounds[0].get(side, {}) else None for side in (NSQC, FLOOR, NSQD)]
        holds = ((by_floor is not None and by_floor >= BAR_FLOOR)
                 or (by_nsqd is not None and by_nsqd >= BARS_NSQD.get(key, BAR_NSQD)))
        lines.append([f"{size:,} B", key, *(show(rate, 0) for rate in rates), show(by_floor), show(by_nsqd),
                      "" if key in QUEUES else show(middle(rounds, NSQC, f"{key} cpu"), 2), "yes" if holds else "NO"])
    lines.append([f"{size:,} B", "longest /ping, ms", show(middle(rounds, NSQC, "ping"), 1), "",
                  show(middle(rounds, NSQD, "ping"), 1) if NSQD in rounds[0] else "", "", "", "",
                  "yes" if middle(rounds, NSQC, "ping") <= BAR_PING_MS else "NO"])
    held = middle(rounds, NSQC, "memory")
    lines.append([f"{size:,} B", "memory × records", show(held), "", show(middle(rounds, NSQD, "memory")
                  if NSQD in rounds[0] else None), "", "", "", "yes" if held <= BAR_MEMORY else "NO"])
    return lines


def main() -> int:
    """0: everything was measured, whether the bars hold or not."""
    parser = argparse.ArgumentParser(prog="python -m perf.sizes.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--nsqd", metavar="PATH", help="an nsqd to measure as well")
    parser.add_argument("--nsqc", default=f"{shlex.quote(sys.executable)} -m nsqc serve", metavar="CMD")
    parser.add_argument("--json", metavar="FILE", help="all rounds, for perf.sizes.chart")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works, measures nothing")
    args = parser.parse_args()
    sides = sides_of(args)
    where, done, table = machine(), {}, []
    for size in map(int, args.sizes.split(",")):
        rounds: list[dict[str, Results]] = []
        for number in range(1 if args.quick else args.rounds):
            work = Work(size, args.quick)
            rounds.append({side.name: work.run(side) for side in (sides if number % 2 == 0 else sides[::-1])})
            print(f"{size} B: round {number + 1}", file=sys.stderr)
        done[size] = rounds
        table += rows(size, rounds)
    print(f"{where}\n\n| body | metric | nsqc | floor | nsqd | × floor | × nsqd | daemon µs/message | ok |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--|")
    for line in table:
        print("| " + " | ".join(line) + " |")
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": where, "sizes": done}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
