"""The figures, their bars, and the table."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

AGAINST_FLOOR, AGAINST_MEMORY, ABSOLUTE = "floor", "memory", "absolute"


@dataclass(frozen=True)
class Figure:
    """One line. what the bar is about: the ratio to the floor, to the own in-memory figure, or the figure itself."""

    key: str
    title: str
    bar: float | None = None
    about: str = ABSOLUTE
    at_least: bool = False  # False: at most
    digits: int = 2
    own_bar: float | None = None  # of the own floor, where that is faster than the one that the bar was set by


FIGURES = [
    Figure("publish rate", "publish in memory, MPUB 200, messages/s", 0.40, AGAINST_FLOOR, True, 0),
    Figure("publish cpu", "publish in memory, daemon µs/message", 0.25, digits=3),
    # The own floor makes and sends a message in half the time of the one that 0.45 was set by.
    Figure("consume rate", "consume in memory with FIN, messages/s", 0.45, AGAINST_FLOOR, True, 0, own_bar=0.25),
    Figure("consume cpu", "consume in memory, daemon µs/message", 0.30, digits=3),
    Figure("disk publish rate", "publish to disk, messages/s (ratio: to memory)", 0.35, AGAINST_MEMORY, True, 0),
    Figure("disk publish cpu", "publish to disk, daemon µs/message", digits=3),
    Figure("disk consume rate", "consume from disk, messages/s (ratio: to memory)", 0.35, AGAINST_MEMORY, True, 0),
    Figure("disk consume cpu", "consume from disk, daemon µs/message", digits=3),
    Figure("single rate", "PUB, 64 outstanding, messages/s", 0.7, AGAINST_FLOOR, True, 0),
    Figure("single cpu", "PUB, 64 outstanding, daemon µs/message"),
    Figure("single joined rate", "PUB, 64 outstanding, joined writes, messages/s", digits=0),
    Figure("single joined cpu", "PUB, 64 outstanding, joined, daemon µs/message", digits=3),
    Figure("http rate", "HTTP /pub, 16 connections, requests/s", 0.6, AGAINST_FLOOR, True, 0),
    Figure("http cpu", "HTTP /pub, daemon µs/request"),
    Figure("http wrk rate", "HTTP /pub, 16 connections of wrk, requests/s", 0.6, AGAINST_FLOOR, True, 0),
    Figure("bytes", "memory per queued message, bytes", 280, digits=0),
    Figure("latency rdy 1 p50", "PUB to delivery, RDY 1, 300/s, p50 µs", digits=1),
    Figure("latency rdy 1 p99", "PUB to delivery, RDY 1, 300/s, p99 µs", digits=1),
    Figure("latency rdy 100 p50", "PUB to delivery, RDY 100, 300/s, p50 µs", 100, digits=1),
    Figure("latency rdy 100 p99", "PUB to delivery, RDY 100, 300/s, p99 µs", digits=1),
    Figure("latency rdy 100, 4000/s p50", "PUB to delivery, RDY 100, 4000/s, p50 µs", digits=1),
    Figure("latency rdy 100, 4000/s p99", "PUB to delivery, RDY 100, 4000/s, p99 µs", digits=1),
    Figure("idle kb", "idle connection, KB", 12),
    Figure("idle cpu", "idle connections, CPU %", 1),
    Figure("start", "start to /ping, s", 1.5, digits=3),
]


@dataclass(frozen=True)
class Row:
    """A line of the table: medians over the rounds. ratio: of the first side, pair by pair; ok: None without a bar."""

    figure: Figure
    values: list[float | None]
    ratio: float | None
    ok: bool | None


def median(values: list[float]) -> float | None:
    """None where there are none."""
    return statistics.median(values) if values else None


def of(rounds: list[dict], side: str, key: str) -> list[float | None]:
    """A figure of a side, round by round."""
    return [done.get(side, {}).get(key) for done in rounds]


def ratios(above: list[float | None], below: list[float | None]) -> list[float]:
    """Pair by pair, where both are there."""
    return [a / b for a, b in zip(above, below, strict=True) if a is not None and b]


def rows(rounds: list[dict[str, dict[str, float]]], sides: list[str], floor: str, own_floor: bool) -> list[Row]:
    """The table from what each round gave, by side and figure. The first side is the one that is judged."""
    table = []
    for figure in FIGURES:
        if own_floor and figure.own_bar is not None:
            figure = replace(figure, bar=figure.own_bar)
        own = of(rounds, sides[0], figure.key)
        values = [median([x for x in of(rounds, side, figure.key) if x is not None]) for side in sides]
        if values == [None] * len(sides):
            continue
        if figure.about == AGAINST_MEMORY:
            below = of(rounds, sides[0], figure.key.removeprefix("disk "))
        else:
            below = of(rounds, floor, figure.key)
        ratio = median(ratios(own, below))
        judged = values[0] if figure.about == ABSOLUTE else ratio
        table.append(Row(figure, values, ratio, holds(figure, judged)))
    return table


def holds(figure: Figure, value: float | None) -> bool | None:
    """Whether a value is on the right side of the bar; None where one of them is missing."""
    if figure.bar is None or value is None:
        return None
    return value >= figure.bar if figure.at_least else value <= figure.bar


def bar_text(figure: Figure) -> str:
    """The bar as the table shows it."""
    if figure.bar is None:
        return ""
    kind = "" if figure.about == ABSOLUTE else "ratio "
    return f"{kind}{'≥' if figure.at_least else '≤'} {figure.bar:g}"


def cells(row: Row) -> list[str]:
    """A row as texts: title, a value for each side, ratio, bar, ok."""
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:,.{row.figure.digits}f}"

    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    ok = {None: "", True: "yes", False: "NO"}[row.ok]
    return [row.figure.title, *map(number, row.values), ratio, bar_text(row.figure), ok]


def text(table: list[Row], sides: list[str], markdown: bool = False) -> str:
    """The table for a terminal or as Markdown."""
    lines = [["figure", *sides, "ratio", "bar", "ok"], *map(cells, table)]
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
