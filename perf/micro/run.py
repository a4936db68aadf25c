"""Runs all benches, or those named: `python -m perf.micro.run [--quick] [parser heap ...]`."""

import argparse
import importlib
from pathlib import Path

from perf.micro import timing


def names() -> list[str]:
    """The names of all benches."""
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def main() -> None:
    """Prints the rows of each bench when it is done."""
    parser = argparse.ArgumentParser(prog="python -m perf.micro.run", description=__doc__)
    parser.add_argument("bench", nargs="*", help=f"default all: {' '.join(names())}")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works, measures nothing")
    args = parser.parse_args()
    if unknown := set(args.bench) - set(names()):
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    for name in args.bench or names():
        module = importlib.import_module(f"perf.micro.bench_{name}")
        timing.show(module.TITLE, module.bench(timing.QUICK if args.quick else timing.Size()))


if __name__ == "__main__":
    main()
