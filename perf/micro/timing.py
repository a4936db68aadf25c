"""Timing for the benches: nanoseconds per operation, the best of several runs, beside a reference in the same run.

The reference is a fixed piece of plain work (a pass over the same bytes, a dict, a deque). Its time depends on the
machine like the bench's, so their ratio can be compared between machines. If a module is driven call by call, both
include calls from Python; if one call does many operations, those are negligible.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

REPEATS = 7


@dataclass(frozen=True)
class Row:
    """One result: ns per operation, and ns per operation of the reference."""

    name: str
    ns: float
    reference: str
    reference_ns: float

    @property
    def ratio(self) -> float:
        """An operation's cost in references."""
        return self.ns / self.reference_ns


@dataclass(frozen=True)
class Part:
    """Work to be timed. make() prepares a run and returns a function without arguments, which is timed."""

    name: str
    make: Callable[[], Callable[[], object]]
    operations: int


@dataclass(frozen=True)
class Size:
    """The amount of work of a bench: a share of its usual operations, and the number of runs."""

    share: float = 1.0
    repeats: int = REPEATS

    def of(self, count: int) -> int:
        """The share of count, at least 1."""
        return max(1, int(count * self.share))


QUICK = Size(0.01, 1)


def once(part: Part) -> float:
    """Nanoseconds per operation of one run."""
    run = part.make()
    collecting = gc.isenabled()
    gc.disable()
    try:
        began = time.perf_counter_ns()
        run()
        return (time.perf_counter_ns() - began) / part.operations
    finally:
        if collecting:
            gc.enable()


def compare(part: Part, reference: Part, size: Size) -> Row:
    """Times both alternately; returns the best of each."""
    times = [(once(part), once(reference)) for _ in range(size.repeats)]
    return Row(part.name, min(ns for ns, _ in times), reference.name, min(ns for _, ns in times))


def exhaust(calls: Iterable[object]) -> None:
    """Exhausts an iterator at minimal cost: exhaust(map(function, arguments))."""
    deque(calls, maxlen=0)


def show(title: str, rows: list[Row]) -> None:
    """Prints a bench's rows."""
    print(title)
    for row in rows:
        print(f"  {row.name:44} {row.ns:9.1f} ns   {row.ratio:7.2f} x {row.reference} ({row.reference_ns:.1f} ns)")


def main(title: str, bench: Callable[[Size], list[Row]]) -> None:
    """The command line of one bench."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--quick", action="store_true", help="tiny: shows that it works, measures nothing")
    show(title, bench(QUICK if parser.parse_args().quick else Size()))
