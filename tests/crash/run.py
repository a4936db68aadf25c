"""kill -9 at random moments under load; compares each channel's deliveries afterwards with the books.

    python -m tests.crash.run [--rounds 1000] [--seed 1] [--sync write|fsync] [--storage log|memory] [--keep]

Each 50 rounds begin with an empty data path. The seed determines the actions and the kinds of moments, the machine when
threads and processes run. The exit code is 1 if a promise did not hold; then the data path is kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.crash.rounds import rounds

RUN = 50        # rounds on one data path
FLAGS = {"log": ("--topic-storage=log", "--max-bytes-per-file=30000"),
         "memory": ("--mem-queue-size=0", "--max-bytes-per-file=30000")}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000, help="default 1000")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--sync", choices=("write", "fsync"), help="default: in turns")
    parser.add_argument("--storage", choices=tuple(FLAGS), default="log", help="default log")
    parser.add_argument("--keep", action="store_true", help="keep the data paths")
    return parser.parse_args()


def main() -> int:
    """Prints a line for each data path, and the sums."""
    args = arguments()
    moments: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    done, began = 0, time.monotonic()
    while done < args.rounds:
        number = done // RUN
        sync = args.sync or ("write", "fsync")[number % 2]
        flags = FLAGS[args.storage] + ((f"--log-sync={sync}",) if args.storage == "log" else ())
        folder = Path(tempfile.mkdtemp(prefix="nsqc-crash-"))
        try:
            with rounds(folder, args.seed + number, args.storage, *flags) as run:
                for _ in range(min(RUN, args.rounds - done)):
                    moment = run.round()
                    done += 1
        except AssertionError as error:
            print(f"round {done + 1}, seed {args.seed + number}, {sync}: {error}\nthe data path is kept: {folder}")
            return 1
        moments += run.moments
        totals += run.totals
        print(f"{done} rounds, the last {sync}, {moment}; {time.monotonic() - began:.0f} s", flush=True)
        if not args.keep:
            shutil.rmtree(folder)
    print("kills by moment: " + ", ".join(f"{name} {count}" for name, count in moments.most_common()))
    print("messages: " + ", ".join(f"{name} {count:,}" for name, count in totals.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
