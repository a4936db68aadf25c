"""nsqc beside other message servers: nsqd, Redis Streams, beanstalkd, NATS JetStream, RabbitMQ.

    python -m perf.rivals.run [--rounds 3] [--only nsqc,nsqd,...] [--modes memory,written,synced] [--nsqd PATH]

Skips servers that are not installed, with a line each. In each mode each server starts in an empty folder; the order
alternates between rounds. Bodies have 200 bytes:

    one at a time   a connection publishes when the previous message is acknowledged; 1 connection, and 64
    batches         2 connections, 4 batches of 200 messages unacknowledged on each: MPUB for NSQ, one write of 200
                    publishes for the others
    consume         those messages, 1 connection, at most 2,500 unacknowledged: FIN; XREADGROUP of 500 and one XACK;
                    pulls of 500 with an explicit ack each; basic.ack of a quarter of the prefetch; reserve and delete,
                    with 64 unacknowledged, which is faster for beanstalkd

The client is one thread of C, the same loop for each protocol (main.c). Results are medians over the rounds: messages
per second, and the server's CPU time per message in µs (user and system, all threads), which depends least on the
client and on other work of the machine. * marks rates at which the client used more than 0.9 of a core: it may be the
limit.

Each table shows the configuration of each server. Differences that remain: nsqd, nsqc in memory, beanstalkd and
RabbitMQ delete a finished message; Redis Streams, JetStream (retention by limits) and nsqc's logs keep it. XACK and
basic.ack cover many messages, the other acknowledgements one. No server replicates. Redis does not rewrite its file
during a run.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from perf import programs
from perf.load.run import Others, machine
from perf.load.server import ServerError
from perf.load.work import Bench as Warmer
from perf.load.work import Scale as WarmScale
from perf.rivals.servers import MODES, Kind, kinds

SIZE = 200
CLIENT_SECONDS, SETTLE_S, CLIENT_BOUND = 180, 0.3, 0.9
ALONE, QUEUE = "alone", "load"

Results = dict[str, float]      # by case and figure, such as "batches rate"


@dataclass(frozen=True)
class Case:
    """A publishing case, as options of the load client."""

    name: str
    title: str
    topic: str
    connections: int
    batch: int = 1
    window: int = 1


CASES = (Case("one", "one at a time, 1 connection", ALONE, 1), Case("many", "one at a time, 64 connections", ALONE, 64),
         Case("batches", "batches", QUEUE, 2, 200, 4))
TITLES = {**{case.name: case.title for case in CASES}, "consume": "consume"}


class Bench:
    """All cases for one server and mode at a time."""

    def __init__(self, seconds: float, count: int):
        self.client = str(programs.rivals())
        self.warmer = Warmer(programs.client(), WarmScale(size=SIZE))
        self.seconds, self.count = seconds, count

    def measure(self, kind: Kind, mode: str) -> Results:
        """Results of one server. Raises ServerError."""
        results: Results = {}
        self.warmer.warm(2 * self.count)
        with kind.start(mode) as server:
            common = ["-P", kind.protocol, "-p", server.port, "-s", SIZE, *([] if mode == "memory" else ["-d"])]

            def run(name: str, *options: object) -> float:
                cpu = server.cpu_s()
                done = self._client(*options, *common)
                time.sleep(SETTLE_S)        # work after the last answer is part of the cost
                results[f"{name} rate"] = done["messages"] / done["seconds"]
                results[f"{name} cpu"] = (server.cpu_s() - cpu) / done["messages"] * 1e6
                results[f"{name} client"] = done["client_cpu_s"] / done["seconds"]
                return done["messages"]

            for topic in (ALONE, QUEUE):
                self._client("setup", "-T", topic, *common)
            published = 0.0
            for case in CASES:
                published = run(case.name, "pub", "-T", case.topic, "-c", case.connections, "-b", case.batch,
                                "-w", case.window, "-t", self.seconds, "-n", self.count)
            run("consume", "sub", "-T", QUEUE, "-w", kind.window, "-n", int(published))
        return results

    def _client(self, *arguments: object) -> dict[str, float]:
        command = [self.client, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_SECONDS)
        if done.returncode:
            raise ServerError(f"{shlex.join(command[1:])}: {done.stderr.strip() or done.returncode}")
        result: dict[str, float] = json.loads(done.stdout)
        return result


def cell(rounds: list[Results], case: str) -> str:
    """The CPU time of a message and the rate, as medians."""
    done = [results for results in rounds if f"{case} rate" in results]
    if not done:
        return "failed"
    rate, cpu, client = (statistics.median(results[f"{case} {figure}"] for results in done)
                         for figure in ("rate", "cpu", "client"))
    return f"{cpu:{',.0f' if cpu >= 100 else '.3g'}} µs; {rate:,.0f}/s{'*' if client > CLIENT_BOUND else ''}"


def table(mode: str, sides: list[Kind], rounds: dict[str, list[Results]]) -> str:
    """A mode's results as Markdown: a row for each server, with its promise."""
    lines = [f"{MODES[mode]}\n", f"| server | {' | '.join(TITLES.values())} | configuration |",
             "|---|" + "--:|" * len(TITLES) + "---|"]
    for kind in sides:
        if mode in kind.promises:
            cells = [cell(rounds[kind.name], case) for case in TITLES]
            lines.append(f"| {kind.name} {kind.version} | {' | '.join(cells)} | {kind.promises[mode]} |")
        else:
            lines.append(f"| {kind.name} {kind.version} |" + " |" * len(TITLES) + " not offered |")
    return "\n".join(lines) + "\n"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m perf.rivals.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--only", default="", help="comma-separated names of servers, such as nsqc,redis,jetstream")
    parser.add_argument("--modes", default=",".join(MODES), help="comma-separated; default all three")
    parser.add_argument("--seconds", type=float, default=3.0, help="limit of each publishing case; default 3")
    parser.add_argument("--count", type=int, default=600_000,
                        help="limit of messages of each publishing case; default 600000")
    parser.add_argument("--nsqd", metavar="PATH", help="nsqd's executable; default: from PATH")
    parser.add_argument("--nsqc", default=f"{shlex.quote(sys.executable)} -m nsqc serve", metavar="CMD",
                        help="the daemon under test; default: this tree's")
    parser.add_argument("--json", metavar="FILE", help="also write all rounds, as JSON")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works, measures nothing")
    args = parser.parse_args()
    if unknown := set(args.modes.split(",")) - MODES.keys():
        parser.error(f"no such mode: {', '.join(sorted(unknown))}; one of {', '.join(MODES)}")
    return args


def main() -> int:
    """0: every server that is installed was measured; 1: something failed; 2: nothing could be run."""
    args = arguments()
    sides, missing = kinds(shlex.split(args.nsqc), args.nsqd)
    for line in missing:
        print(line, file=sys.stderr)
    if args.only:
        wanted = args.only.lower().split(",")
        sides = [kind for kind in sides if kind.name.lower().split()[0] in wanted]
    if not sides:
        print(f"--only={args.only}: none of these servers is installed", file=sys.stderr)
        return 2
    try:
        bench = Bench(0.2, 4000) if args.quick else Bench(args.seconds, args.count)
    except programs.BuildError as error:
        print(error, file=sys.stderr)
        return 2
    failures, where, everything = 0, machine(), {}
    disturbed: list[float] = []
    print(where + "\n")
    for mode in args.modes.split(","):
        rounds: dict[str, list[Results]] = {kind.name: [] for kind in sides}
        for number in range(1 if args.quick else args.rounds):
            for kind in sides if number % 2 == 0 else sides[::-1]:
                if mode not in kind.promises:
                    continue
                others = Others()
                try:
                    rounds[kind.name].append(bench.measure(kind, mode))
                    disturbed.append(others.cores())
                except (ServerError, OSError, subprocess.SubprocessError) as error:
                    failures += 1
                    print(f"{kind.name}, {mode}: {error}", file=sys.stderr)
            print(f"{mode}: round {number + 1}", file=sys.stderr)
        everything[mode] = rounds
        print(table(mode, sides, rounds), flush=True)
    if disturbed:
        print(f"other processes used {statistics.median(disturbed):.1f} cores in the median, "
              f"{max(disturbed):.1f} at most")
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": where, "modes": everything}, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
