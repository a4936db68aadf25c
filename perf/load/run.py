"""Runs the whole-daemon load and prints metric | nsqc | floor | ratio | bar | ok.

    python -m perf.load.run [--rounds 3] [--only memory,disk,...] [--against 'CMD'] [--limit PATH] [--markdown]

nsqc and the floor (perf/floor/skipping.c, a server without a queue) do the same work alternately, each freshly started
in an empty data path; --against measures one more nsqd-compatible daemon (a command that takes nsqd's flags), --limit
another floor. A result is the median over the rounds, a ratio the median of the ratios within the rounds. Rates vary
with the machine and its other load; ratios and the daemon's CPU time per message hardly do. The exit code says whether
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

from perf import programs
from perf.load import metrics
from perf.load.server import ServerError, Side
from perf.load.work import QUICK, Bench, ClientError, Scale

NSQC, FLOOR, AGAINST = "nsqc", "floor", "against"
DISTURBED_CORES = 0.25  # other processes' work that marks a workload as disturbed


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m perf.load.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--only", default="", help="comma-separated: memory, disk, single, alone, http, latency, idle")
    parser.add_argument("--nsqc", default=f"{shlex.quote(sys.executable)} -m nsqc serve", metavar="CMD",
                        help="the daemon under test; default: this tree's")
    parser.add_argument("--against", metavar="CMD", help="a second daemon")
    parser.add_argument("--limit", metavar="PATH", help="a floor server to use instead of our own")
    parser.add_argument("--tries", type=int, default=1, metavar="N",
                        help="repeat a workload that other processes disturb, up to N times; default 1")
    parser.add_argument("--markdown", action="store_true", help="a table for RESULTS.md")
    parser.add_argument("--json", metavar="FILE", help="also write all rounds, as JSON")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works, measures nothing")
    return parser.parse_args()


def sides_of(args: argparse.Namespace) -> list[Side]:
    """The servers to measure, in the order of the columns."""
    if args.limit:
        floor = Side(FLOOR, (str(Path(args.limit).absolute()),), queues=False, forwards=False)
    else:
        floor = Side(FLOOR, (str(programs.floor()),), queues=False)
    sides = [Side(NSQC, tuple(shlex.split(args.nsqc))), floor]
    if args.against:
        sides.append(Side(AGAINST, tuple(shlex.split(args.against))))
    return sides


def machine() -> str:
    """One line about the machine."""
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    return (f"{time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores {model}, Linux {platform.release()}, "
            f"Python {platform.python_version()}, load average {os.getloadavg()[0]:.1f}")


class Others:
    """The share of the machine that other processes use while a workload runs, in cores."""

    def __init__(self) -> None:
        self._began, self._all, self._own = time.monotonic(), busy_s(), own_s()

    def cores(self) -> float:
        """The share since the start. The kernel's own work (writing back, say) counts as that of others."""
        used = busy_s() - self._all - (own_s() - self._own)
        return max(0.0, used) / (time.monotonic() - self._began)


def busy_s() -> float:
    """CPU time of the whole machine, in seconds."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def own_s() -> float:
    """CPU time of this process and of the children it has waited for, in seconds."""
    return sum(used.ru_utime + used.ru_stime
               for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


class Run:
    """Rounds of workloads on several sides; the order of the sides alternates."""

    def __init__(self, bench: Bench, sides: list[Side], names: list[str], tries: int):
        self.work = {name: bench.all()[name] for name in names}
        self.sides = sides
        self.tries = tries
        self.runs = self.disturbed = self.failures = 0

    def round(self, number: int) -> dict[str, dict[str, float]]:
        """Results by side and name."""
        results: dict[str, dict[str, float]] = {side.name: {} for side in self.sides}
        for name in self.work:
            for side in self.sides if number % 2 == 0 else self.sides[::-1]:
                results[side.name] |= self._least_disturbed(name, side)
            print(f"round {number + 1}: {name}", file=sys.stderr)
        return results

    def _least_disturbed(self, name: str, side: Side) -> dict[str, float]:
        """One workload, repeated up to the number of tries while others disturb it: the least disturbed run."""
        done: list[tuple[float, dict[str, float]]] = []
        for _ in range(self.tries):
            others = Others()
            try:
                results = self.work[name](side)
            except (ClientError, ServerError, OSError, subprocess.SubprocessError) as error:
                self.failures += 1
                print(f"{name}, {side.name}: {error}", file=sys.stderr)
                return {}
            if not results:
                return {}
            done.append((others.cores(), results))
            if done[-1][0] < DISTURBED_CORES:
                break
        self.runs += 1
        least = min(done, key=lambda pair: pair[0])
        self.disturbed += least[0] >= DISTURBED_CORES
        return least[1]


def main() -> int:
    """0: everything was measured; 1: something failed; 2: nothing could be run."""
    args = arguments()
    bench_scale = QUICK if args.quick else Scale()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        bench = Bench(programs.client(), bench_scale)
        sides = sides_of(args)
    except programs.BuildError as error:
        print(error, file=sys.stderr)
        return 2
    names = args.only.split(",") if args.only else list(bench.all())
    if unknown := set(names) - bench.all().keys():
        print(f"no such workload: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    where = machine()
    run = Run(bench, sides, names, 1 if args.quick else args.tries)
    rounds = [run.round(number) for number in range(1 if args.quick else args.rounds)]
    columns = [side.name for side in sides]
    print(where)
    print("memory was warmed (touched and freed) before each fill; "
          f"other processes disturbed {run.disturbed} of {run.runs} runs\n")
    table = metrics.rows(rounds, columns, FLOOR, own_floor=not args.limit)
    print(metrics.text(table, columns, args.markdown))
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": where, "rounds": rounds}, indent=1))
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
