"""Each path of the Spark sources compared with a plain loop and Spark's noop sink, in one run on one machine.

    python -m perf.spark.run [--rows N] [--rounds N] [--only sinks,sources,files,logs,publishers] [--set KEY=VALUE]

Bodies have 200 bytes. Every round measures everything once; the medians over the rounds are printed, in thousand rows
per second, or in nanoseconds if the name says so.
Spark runs local[2]; daemons, Spark's Java and its Python workers share the machine's cores.
"""

from __future__ import annotations

import argparse
import statistics

from perf.spark.bench import Bench
from perf.spark.logs import Logs


def main() -> None:
    """Prints the medians as a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="sinks,sources,files,logs,publishers")
    parser.add_argument("--cold", action="store_true", help="do not warm up Java: the figures say nothing")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    chosen = parser.parse_args()
    bench = Bench(chosen.rows, dict(setting.split("=", 1) for setting in chosen.set))
    parts = chosen.only.split(",")
    logs = Logs(bench) if {"logs", "publishers"} & set(parts) else None
    ways = {"sinks": bench.sinks, "sources": bench.sources, "files": bench.files,
            **({"logs": logs.measure, "publishers": logs.beside_publishers} if logs else {})}
    try:
        for number in range(int(chosen.cold), chosen.rounds + 1):
            for part in parts:
                ways[part]()
            if not number:      # the first round warms up Java
                bench.rates.clear()
            print(f"round {number} of {chosen.rounds}: "
                  + ", ".join(f"{name} {rates[-1]:,.0f}" for name, rates in bench.rates.items()), flush=True)
        for name, rates in bench.rates.items():
            print(f"| {name} | {statistics.median(rates):,.0f} | {min(rates):,.0f} to {max(rates):,.0f} |")
    finally:
        if logs:
            logs.close()
        bench.close()


if __name__ == "__main__":
    main()
