"""Two nodes on the cores of one machine beside one: `python -m perf.nodes [--rounds 3] [--nsqd PATH] [--quick]`.

Two load clients publish (MPUB of 200, 4 unanswered on each of 2 connections) and then consume with FIN; with two nodes
each client has one of them. Rates are messages per second of both together, CPU is that of the daemons in µs per
message. The clients run on the same machine, so with two cores four processes share them. Results are medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys

from perf import programs
from perf.load.run import Others, machine
from perf.load.server import Server, ServerError, Side

CLIENTS = 2
MEM_QUEUE = 20_000_000

Results = dict[str, float]


def load(servers: list[Server], key: str, count: int, mode: str, *options: str) -> Results:
    """Runs the clients, spread over the servers, to their ends. Raises ServerError."""
    cpu = sum(server.cpu_s() for server in servers)
    clients = [subprocess.Popen([programs.rivals(), mode, "-P", "nsq", "-p", str(servers[at % len(servers)].tcp),
                                 "-n", str(count), "-t", "60", *options], stdout=subprocess.PIPE, text=True)
               for at in range(CLIENTS)]
    done = [json.loads(client.communicate(timeout=300)[0] or "{}") for client in clients]
    if any(not one for one in done):
        raise ServerError(f"a client failed: {mode} {' '.join(options)}")
    total = sum(one["messages"] for one in done)
    return {f"{key} rate": total / max(one["seconds"] for one in done),
            f"{key} cpu": (sum(server.cpu_s() for server in servers) - cpu) / total * 1e6}


def measure(side: Side, nodes: int, count: int) -> Results:
    """Publishes count messages with each client, and consumes three quarters: a shared node divides them unevenly."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(side, f"--mem-queue-size={MEM_QUEUE}")) for _ in range(nodes)]
        for server in servers:
            server.channel("load", "c")
        return (load(servers, "publish", count, "pub", "-c", "2", "-b", "200", "-w", "4")
                | load(servers, "consume", count * 3 // 4, "sub", "-w", "2500"))


def main() -> int:
    """0: measured; 1: something failed."""
    parser = argparse.ArgumentParser(prog="python -m perf.nodes", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--count", type=int, default=2_000_000, help="messages of each client; default 2000000")
    parser.add_argument("--nsqd", metavar="PATH", help="an nsqd to measure as well")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works, measures nothing")
    args = parser.parse_args()
    nsqc = Side("nsqc", (sys.executable, "-m", "nsqc", "serve"))
    columns = {"one nsqc": (nsqc, 1), "two nsqc": (nsqc, 2)}
    if args.nsqd:
        columns["one nsqd"] = (Side("nsqd", (args.nsqd,)), 1)
    rounds: list[dict[str, Results]] = []
    others = Others()
    try:
        for number in range(1 if args.quick else args.rounds):
            rounds.append({name: measure(*columns[name], 20_000 if args.quick else args.count)
                           for name in list(columns)[::-1 if number % 2 else 1]})
    except (programs.BuildError, ServerError, OSError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{machine()}; other processes used {others.cores():.1f} cores\n")
    print("| daemons | publish/s | µs | consume/s | µs |\n|---|--:|--:|--:|--:|")
    for name in columns:
        found = {key: statistics.median(done[name][key] for done in rounds) for key in rounds[0][name]}
        print(f"| {name} | {found['publish rate']:,.0f} | {found['publish cpu']:.3f} | {found['consume rate']:,.0f} "
              f"| {found['consume cpu']:.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
