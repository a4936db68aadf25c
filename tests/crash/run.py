"""kill -9 at random moments under load; compares each channel's deliveries afterwards with the books.

    python -m tests.crash.run [--rounds 1000] [--seed 1] [--sync write|fsync] [--storage log|memory|all]
                              [--interval 0-6] [--seconds 300] [--keep]

Each 50 rounds begin with an empty data path. With --interval, daemons are killed up to three times before the check, with
a load of that many seconds before each kill; 0-6 is a crash loop, or a quick supervisor. The seed determines the actions
and the kinds of moments, the machine when threads and processes run. The exit code is 1 if a promise did not hold; then
the data path is kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.crash.rounds import INTERVAL, rounds

RUN = 50        # rounds on one data path
KILLS = 3       # before a check, with --interval
FLAGS = {"log": ("--topic-storage=log", "--max-bytes-per-file=30000"),
         "memory": ("--mem-queue-size=0", "--max-bytes-per-file=30000")}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000, help="default 1000")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--sync", choices=("write", "fsync"), help="default: alternating")
    parser.add_argument("--storage", choices=(*FLAGS, "all"), default="log", help="default log; all: alternating")
    parser.add_argument("--interval", type=interval, help="seconds before a kill, such as 0-6")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="ends after this time")
    parser.add_argument("--keep", action="store_true", help="keep the data paths")
    return parser.parse_args()


def interval(text: str) -> tuple[float, float]:
    """From SHORTEST-LONGEST."""
    shortest, _, longest = text.partition("-")
    return float(shortest), float(longest)


def cases(args: argparse.Namespace) -> list[tuple[str, tuple[str, ...]]]:
    """Storages and further flags, used round-robin."""
    logs = [("log", (f"--log-sync={sync}",)) for sync in ("write", "fsync") if args.sync in (None, sync)]
    return {"log": logs, "memory": [("memory", ())], "all": [*logs, ("memory", ())]}[args.storage]


def main() -> int:
    """Prints a line for each data path, and the sums."""
    args = arguments()
    given = cases(args)
    moments: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    done = number = 0
    began = time.monotonic()
    while done < args.rounds and time.monotonic() - began < args.seconds:
        storage, flags = given[number % len(given)]
        folder = Path(tempfile.mkdtemp(prefix="nsqc-crash-"))
        until = time.monotonic() + args.seconds / len(given)
        name = " ".join((storage, *flags))
        try:
            with rounds(folder, args.seed + number, storage, *FLAGS[storage], *flags,
                        interval=args.interval or INTERVAL, kills=KILLS if args.interval else 1) as run:
                while run.number < RUN and done < args.rounds and time.monotonic() < until:
                    moment = run.round()
                    done += 1
        except AssertionError as error:
            print(f"round {done + 1}, seed {args.seed + number}, {name}: {error}\nthe data path is kept: {folder}")
            return 1
        number += 1
        moments += run.moments
        totals += run.totals
        totals["ids"] += len(run.known.ids) // 2
        print(f"{done} rounds, the last {name}, {moment}; {time.monotonic() - began:.0f} s", flush=True)
        if not args.keep:
            shutil.rmtree(folder)
    print("kills by moment: " + ", ".join(f"{name} {count}" for name, count in moments.most_common()))
    print("messages: " + ", ".join(f"{name} {count:,}" for name, count in totals.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
