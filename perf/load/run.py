"""Runs the whole-daemon load and prints figure | nsqc | floor | ratio | bar | ok.

    python -m perf.load.run [--rounds 3] [--only memory,disk,...] [--against 'CMD'] [--limit PATH] [--markdown]

nsqc and the floor (perf/load/floor.c, a server without a queue) do the same work in turns, each started afresh in an
empty data path; --against measures one more nsqd-compatible daemon (a command that takes nsqd's flags), --limit another
floor. A figure is the median over the rounds, a ratio the median of the ratios within the rounds. Rates move with the
machine and with what else runs on it; ratios and the daemon's CPU time per message hardly. The exit code says whether
everything could be measured, not whether the bars hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path

from perf.load import build, figures
from perf.load.server import ServerError, Side
from perf.load.work import QUICK, Bench, ClientError, Scale

NSQC, FLOOR, AGAINST = "nsqc", "floor", "against"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m perf.load.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--only", default="", help="comma-separated: memory, disk, single, http, latency, idle")
    parser.add_argument("--nsqc", default=f"{shlex.quote(sys.executable)} -m nsqc serve", metavar="CMD",
                        help="the daemon under test; default: this tree's")
    parser.add_argument("--against", metavar="CMD", help="a second daemon")
    parser.add_argument("--limit", metavar="PATH", help="another floor server than perf/load/floor.c")
    parser.add_argument("--markdown", action="store_true", help="a table for RESULTS.md")
    parser.add_argument("--json", metavar="FILE", help="also all rounds, as JSON")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works, measures nothing")
    return parser.parse_args()


def sides_of(args: argparse.Namespace) -> list[Side]:
    """What is measured, in the order of the columns."""
    if args.limit:
        floor = Side(FLOOR, (str(Path(args.limit).absolute()),), queues=False, forwards=False)
    else:
        floor = Side(FLOOR, (str(build.floor()),), queues=False)
    sides = [Side(NSQC, tuple(shlex.split(args.nsqc))), floor]
    if args.against:
        sides.append(Side(AGAINST, tuple(shlex.split(args.against))))
    return sides


def machine() -> str:
    """One line on what the figures were taken on."""
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    return (f"{time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores {model}, Linux {platform.release()}, "
            f"Python {platform.python_version()}, load average {os.getloadavg()[0]:.1f}")


def busy() -> bool:
    """Whether something else is running: half a core or more within a moment."""
    def idle() -> int:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        return int(fields[4]) + int(fields[5])

    before, seconds = idle(), 0.5
    time.sleep(seconds)
    free = (idle() - before) / os.sysconf("SC_CLK_TCK") / seconds
    return free < os.cpu_count() - 0.5


def measure(bench: Bench, sides: list[Side], rounds: int, names: list[str]) -> tuple[list[dict], int]:
    """All rounds, and how many pieces of work failed. The order of the sides alternates."""
    work, failures, done = bench.all(), 0, []
    for number in range(rounds):
        found: dict[str, dict[str, float]] = {side.name: {} for side in sides}
        for name in names:
            for side in sides if number % 2 == 0 else sides[::-1]:
                try:
                    found[side.name] |= work[name](side)
                except (ClientError, ServerError, OSError, subprocess.SubprocessError) as error:
                    failures += 1
                    print(f"round {number + 1}, {name}, {side.name}: {error}", file=sys.stderr)
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr)
        done.append(found)
    return done, failures


def main() -> int:
    """0: everything was measured; 1: something failed; 2: nothing could be run."""
    args = arguments()
    bench_scale = QUICK if args.quick else Scale()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        bench = Bench(build.client(), bench_scale)
        sides = sides_of(args)
    except build.BuildError as error:
        print(error, file=sys.stderr)
        return 2
    names = args.only.split(",") if args.only else list(bench.all())
    if unknown := set(names) - bench.all().keys():
        print(f"no such work: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    where = machine()
    if busy():
        print("something else is running on this machine: rates will move", file=sys.stderr)
    rounds, failures = measure(bench, sides, 1 if args.quick else args.rounds, names)
    columns = [side.name for side in sides]
    print(where)
    print("memory was warmed (touched and freed) before each fill\n")
    table = figures.rows(rounds, columns, FLOOR, own_floor=not args.limit)
    print(figures.text(table, columns, args.markdown))
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": where, "rounds": rounds}, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
