"""The metrics of the load run, their bars, and the table."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

AGAINST_FLOOR, AGAINST_MEMORY, ABSOLUTE = "floor", "memory", "absolute"


@dataclass(frozen=True)
class Metric:
    """A metric and its bar, which limits the ratio to the floor, the ratio to the rate in memory, or the value."""

    key: str
    title: str
    bar: float | None = None
    about: str = ABSOLUTE
    at_least: bool = False  # False: at most
    digits: int = 2
    own_bar: float | None = None  # against our own floor, if that is faster than the one that set the bar


METRICS = [
    Metric("publish rate", "publish in memory, MPUB 200, messages/s", 0.40, AGAINST_FLOOR, True, 0),
    Metric("publish cpu", "publish in memory, daemon µs/message", 0.25, digits=3),
    # Our own floor needs half the time per message of the floor that set 0.45.
    Metric("consume rate", "consume in memory with FIN, messages/s", 0.45, AGAINST_FLOOR, True, 0, own_bar=0.25),
    Metric("consume cpu", "consume in memory, daemon µs/message", 0.30, digits=3),
    Metric("disk publish rate", "publish to disk, messages/s (ratio: to memory)", 0.35, AGAINST_MEMORY, True, 0),
    Metric("disk publish cpu", "publish to disk, daemon µs/message", digits=3),
    Metric("disk consume rate", "consume from disk, messages/s (ratio: to memory)", 0.35, AGAINST_MEMORY, True, 0),
    Metric("disk consume cpu", "consume from disk, daemon µs/message", digits=3),
    Metric("single rate", "PUB, 64 outstanding, messages/s", 0.7, AGAINST_FLOOR, True, 0),
    Metric("single cpu", "PUB, 64 outstanding, daemon µs/message"),
    Metric("single joined rate", "PUB, 64 outstanding, joined writes, messages/s", digits=0),
    Metric("single joined cpu", "PUB, 64 outstanding, joined, daemon µs/message", digits=3),
    *(Metric(f"alone {count} rate", f"PUB, one at a time, connections: {count}, messages/s", digits=0)
      for count in (1, 2, 8)),
    *(Metric(f"alone http {count} rate", f"HTTP /pub, one at a time, connections: {count}, requests/s", digits=0)
      for count in (1, 2, 8)),
    Metric("http rate", "HTTP /pub, 16 connections, requests/s", 0.6, AGAINST_FLOOR, True, 0),
    Metric("http cpu", "HTTP /pub, daemon µs/request"),
    Metric("http wrk rate", "HTTP /pub, 16 connections of wrk, requests/s", 0.6, AGAINST_FLOOR, True, 0),
    Metric("bytes", "memory per queued message, bytes", 280, digits=0),
    Metric("latency rdy 1 p50", "PUB to delivery, RDY 1, 300/s, p50 µs", digits=1),
    Metric("latency rdy 1 p99", "PUB to delivery, RDY 1, 300/s, p99 µs", digits=1),
    Metric("latency rdy 100 p50", "PUB to delivery, RDY 100, 300/s, p50 µs", 100, digits=1),
    Metric("latency rdy 100 p99", "PUB to delivery, RDY 100, 300/s, p99 µs", digits=1),
    Metric("latency rdy 100, 4000/s p50", "PUB to delivery, RDY 100, 4000/s, p50 µs", digits=1),
    Metric("latency rdy 100, 4000/s p99", "PUB to delivery, RDY 100, 4000/s, p99 µs", digits=1),
    Metric("idle kb", "idle connection, KB", 12),
    Metric("idle cpu", "idle connections, CPU %", 1),
    Metric("start", "start to /ping, s", 1.5, digits=3),
]


@dataclass(frozen=True)
class Row:
    """A row of the table: medians over the rounds. ratio: of the first side, round by round; ok: None without a bar."""

    metric: Metric
    values: list[float | None]
    ratio: float | None
    ok: bool | None


def median(values: list[float]) -> float | None:
    """The median; None of no values."""
    return statistics.median(values) if values else None


def of(rounds: list[dict], side: str, key: str) -> list[float | None]:
    """A side's values of a metric, round by round."""
    return [done.get(side, {}).get(key) for done in rounds]


def ratios(above: list[float | None], below: list[float | None]) -> list[float]:
    """The ratios of the complete pairs."""
    return [a / b for a, b in zip(above, below, strict=True) if a is not None and b]


def rows(rounds: list[dict[str, dict[str, float]]], sides: list[str], floor: str, own_floor: bool) -> list[Row]:
    """The table, from the results of each round by side and metric. The first side is the one under test."""
    table = []
    for metric in METRICS:
        if own_floor and metric.own_bar is not None:
            metric = replace(metric, bar=metric.own_bar)
        own = of(rounds, sides[0], metric.key)
        values = [median([x for x in of(rounds, side, metric.key) if x is not None]) for side in sides]
        if values == [None] * len(sides):
            continue
        if metric.about == AGAINST_MEMORY:
            below = of(rounds, sides[0], metric.key.removeprefix("disk "))
        else:
            below = of(rounds, floor, metric.key)
        ratio = median(ratios(own, below))
        judged = values[0] if metric.about == ABSOLUTE else ratio
        table.append(Row(metric, values, ratio, holds(metric, judged)))
    return table


def holds(metric: Metric, value: float | None) -> bool | None:
    """Whether a value meets its bar; None where the value or the bar is missing."""
    if metric.bar is None or value is None:
        return None
    return value >= metric.bar if metric.at_least else value <= metric.bar


def bar_text(metric: Metric) -> str:
    """The bar as the table shows it."""
    if metric.bar is None:
        return ""
    kind = "" if metric.about == ABSOLUTE else "ratio "
    return f"{kind}{'≥' if metric.at_least else '≤'} {metric.bar:g}"


def cells(row: Row) -> list[str]:
    """A row as text: title, a value for each side, ratio, bar, ok."""
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:,.{row.metric.digits}f}"

    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    ok = {None: "", True: "yes", False: "NO"}[row.ok]
    return [row.metric.title, *map(number, row.values), ratio, bar_text(row.metric), ok]


def text(table: list[Row], sides: list[str], markdown: bool = False) -> str:
    """The table for a terminal or as Markdown."""
    lines = [["metric", *sides, "ratio", "bar", "ok"], *map(cells, table)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    numbers = range(1, len(sides) + 2)
    out = []
    for line in lines:
        padded = [cell.rjust(width) if at in numbers else cell.ljust(width)
                  for at, (cell, width) in enumerate(zip(line, widths, strict=True))]
        out.append("| " + " | ".join(padded) + " |" if markdown else "  ".join(padded).rstrip())
    if markdown:
        out.insert(1, "|" + "|".join("-" * (width + 1) + (":" if at in numbers else "-")
                                     for at, width in enumerate(widths)) + "|")
    return "\n".join(out)
