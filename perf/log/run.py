"""Log-backed topics compared with topics in memory, 200 bytes a message: result | beside | ratio or value | bar.

    python -m perf.log.run [--only rates,channels,...] [--rounds 3] [--quick]
                           [--messages N] [--backlog N] [--cold-bytes N] [--read-bytes N] [--seconds S]

Both sides alternate on this machine, each on a fresh server; the best round counts for both. The last lines report for
each bar whether it holds. The exit code says whether everything could be measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import subprocess
import sys
from pathlib import Path

from perf.load.run import machine
from perf.load.server import ServerError, Side
from perf.load.work import ClientError
from perf.log.work import QUICK, Row, Scale, Work
from perf.programs import BuildError


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m perf.log.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="comma-separated: rates, channels, fsync, batches, latency, start, "
                                                   "read, cold")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--nsqc", default=f"{shlex.quote(sys.executable)} -m nsqc serve", metavar="CMD",
                        help="the daemon under test; default: this tree's")
    for size in dataclasses.fields(Scale):
        flag = "--" + size.name.replace("_", "-")
        parser.add_argument(flag, type=type(size.default), help=f"default {size.default:,}")
    parser.add_argument("--json", metavar="FILE", help="also write the results, as JSON")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works, measures nothing")
    return parser.parse_args()


def cells(row: Row) -> list[str]:
    """A row of the table as text."""
    base = "" if row.base is None else f"{row.base:,.{row.digits}f}"
    return [row.title, base, f"{row.value:,.{row.digits}f}", row.unit, f"{row.judged:.2f}",
            f"{'≥' if row.at_least else '≤'} {row.bar:g}"]


def table(rows: list[Row]) -> str:
    """For a terminal."""
    lines = [["", "beside", "log", "", "ratio or value", "bar"], *map(cells, rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) if at in (1, 2, 4) else cell.ljust(width)
                               for at, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
                     for line in lines)


def main() -> int:
    """0: everything was measured; 1: something failed; 2: nothing could be run."""
    args = arguments()
    given = {size.name: getattr(args, size.name) for size in dataclasses.fields(Scale)}
    scale = dataclasses.replace(QUICK if args.quick else Scale(),
                                **{name: value for name, value in given.items() if value is not None})
    try:
        work = Work(Side("nsqc", tuple(shlex.split(args.nsqc))), scale, 1 if args.quick else args.rounds)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 2
    names = args.only.split(",") if args.only else list(work.all())
    if unknown := set(names) - work.all().keys():
        print(f"no such workload: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    failures = 0
    try:
        where = f"{machine()}\n{work.conditions()}"
    except (BuildError, ServerError, OSError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
        return 2
    rows: list[Row] = []
    for name in names:
        try:
            rows += work.all()[name]()
            print(f"{name}: done", file=sys.stderr)
        except (BuildError, ClientError, ServerError, OSError, subprocess.SubprocessError) as error:
            failures += 1
            print(f"{name}: {error}", file=sys.stderr)
    print(f"{where}\n\n{table(rows)}\n")
    for row in rows:
        print(f"{'ok' if row.ok else 'MISSED'}: {row.title}")
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": where, "rows": [dataclasses.asdict(row) | {"ok": row.ok}
                                                                          for row in rows]}, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
