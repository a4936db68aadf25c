"""Measures stalls: /ping on a kept connection, memory and healthy clients during a large operation.

    python -m perf.stalls.run [--only tiny,drain] [--nsqd PATH] [--rounds 1] [--tries 3] [--json FILE]

Each case runs on its own server with an empty data path; --nsqd runs another daemon, which takes nsqd's flags,
alternating with this tree's. A result is the median over the rounds. /ping is due every 2 ms and waits from then on.
grew: the peak of resident memory above that of the fresh server; queued: bytes in topics and channels before or after,
whichever is more, with a message counted as on disk; in memory: the part of it that is not on disk. ok: p99 and max of
/ping within the bars, grew at most twice the queued bytes in memory (plus 64 MB of buffers and 16 KB a client), and no
client dropped that answers its heartbeats. The exit code says whether everything could be measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from perf.load.run import DISTURBED_CORES, Others, machine
from perf.load.server import Server, ServerError, Side
from perf.load.work import ClientError
from perf.programs import BuildError
from perf.stalls import disk
from perf.stalls.cases import CASES, Case
from perf.stalls.stage import QUICK, Result, Scale, Stage

MAX_MS, P99_MS, GROWS, BUFFERS, CLIENT = 25.0, 10.0, 2, 64 << 20, 16 << 10
HEADS = ("case", "server", "p50 ms", "p99 ms", "max ms", "grew MB", "queued MB", "in memory", "dropped", "ok", "")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m perf.stalls.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(CASES)}, {disk.NAME}")
    parser.add_argument("--rounds", type=int, default=1, help="default 1")
    parser.add_argument("--nsqc", default=f"{shlex.quote(sys.executable)} -m nsqc serve", metavar="CMD",
                        help="the daemon under test; default: this tree's")
    parser.add_argument("--nsqd", metavar="CMD", help="a second daemon")
    parser.add_argument("--tries", type=int, default=1, metavar="N",
                        help="repeat a case that other processes disturb, up to N times; default 1")
    parser.add_argument("--markdown", action="store_true", help="a table for RESULTS.md")
    parser.add_argument("--json", metavar="FILE", help="also write all results, as JSON")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works, measures nothing")
    return parser.parse_args()


def once(case: Case, side: Side, scale: Scale) -> Result:
    """One case on one server."""
    with Server(side, *case.flags, files=case.files(scale.count) if case.files else None) as server:
        stage = Stage(server, scale)
        try:
            case.run(stage)
        finally:
            stage.close()
        if server.process.poll() is not None:
            raise ServerError(f"{case.name}: the server has left with {server.process.returncode}")
        return stage.result


def least_disturbed(case: Case, side: Side, scale: Scale, tries: int) -> Result:
    """A case, repeated while other processes disturb it; returns the least disturbed run."""
    done: list[tuple[float, Result]] = []
    for _ in range(tries):
        others = Others()
        result = once(case, side, scale)
        done.append((others.cores(), result))
        if done[-1][0] < DISTURBED_CORES:
            break
    cores, result = min(done, key=lambda pair: pair[0])
    if cores >= DISTURBED_CORES:
        result.notes.append(f"others used {cores:.1f} cores")
    return result


def middle(rounds: list[Result]) -> Result:
    """The median of each result; notes of the last round, clients dropped and a case's own bar missed in any."""
    last = rounds[-1]
    return dataclasses.replace(
        last, dropped=max(result.dropped for result in rounds),
        own_bar_held=None if last.own_bar_held is None else all(result.own_bar_held for result in rounds),
        **{name: statistics.median(getattr(result, name) for result in rounds)
           for name in ("p50", "p99", "max", "grew", "queued", "in_memory", "seconds")})


def ok(result: Result) -> bool:
    """Whether the bars hold."""
    room = GROWS * result.in_memory + BUFFERS + CLIENT * result.clients
    return (result.max <= MAX_MS and result.p99 <= P99_MS and result.grew <= room and not result.dropped
            and result.own_bar_held is not False)


def row(title: str, side: str, result: Result) -> list[str]:
    """A line of the table."""
    return [title, side, f"{result.p50:.2f}", f"{result.p99:.1f}", f"{result.max:.1f}", f"{result.grew / 1e6:,.0f}",
            f"{result.queued / 1e6:,.0f}", f"{result.in_memory / 1e6:,.0f}", f"{result.dropped}/{result.clients}",
            "yes" if ok(result) else "no", "; ".join(result.notes)]


def table(heads: tuple[str, ...], lines: list[list[str]], markdown: bool) -> str:
    """Rows as text or Markdown."""
    if markdown:
        return "\n".join("| " + " | ".join(cells) + " |" for cells in [list(heads), ["---"] * len(heads), *lines])
    widths = [max(len(cells[at]) for cells in [list(heads), *lines]) for at in range(len(heads))]
    return "\n".join("  ".join(cell.ljust(width) if at < 2 or at == len(heads) - 1 else cell.rjust(width)
                               for at, (cell, width) in enumerate(zip(cells, widths, strict=True))).rstrip()
                     for cells in [list(heads), *lines])


def main() -> int:
    """0: everything was measured; 1: something failed; 2: nothing could be run."""
    args = arguments()
    scale = QUICK if args.quick else Scale()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    names = args.only.split(",") if args.only else [*CASES, disk.NAME]
    if unknown := set(names) - {*CASES, disk.NAME}:
        print(f"no such case: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    sides = [Side("nsqc", tuple(shlex.split(args.nsqc)))]
    if args.nsqd:
        sides.append(Side("nsqd", tuple(shlex.split(args.nsqd))))
    where, failures = machine(), 0
    lines: list[list[str]] = []
    results: dict[str, dict[str, object]] = {}
    for name in (name for name in names if name != disk.NAME):
        for side in sides:
            try:
                rounds = [least_disturbed(CASES[name], side, scale, args.tries) for _ in range(args.rounds)]
            except BuildError as error:
                print(error, file=sys.stderr)
                return 2
            except (ClientError, ServerError, OSError, subprocess.SubprocessError) as error:
                failures += 1
                print(f"{name}, {side.name}: {error}", file=sys.stderr)
                continue
            result = middle(rounds)
            lines.append(row(CASES[name].title, side.name, result))
            results.setdefault(name, {})[side.name] = dataclasses.asdict(result) | {"ok": ok(result)}
            print(f"{name}, {side.name}: {result.seconds:.1f} s, /ping {result.max:.1f} ms at most", file=sys.stderr)
    print(where)
    if lines:
        print(f"bars: /ping max {MAX_MS:.0f} ms, p99 {P99_MS:.0f} ms\n")
        print(table(HEADS, lines, args.markdown))
    if disk.NAME in names:
        try:
            slow = disk.run(sides[0], scale)
            results[disk.NAME] = {sides[0].name: slow}
            print("\n" + disk.text(slow))
        except (BuildError, ClientError, ServerError, OSError, subprocess.SubprocessError) as error:
            failures += 1
            print(f"{disk.NAME}: {error}", file=sys.stderr)
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": where, "cases": results}, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
