"""Formats rows as lines of text that fit the screen."""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

from nsqc.log.visible import visible
from nsqc.tools.top.model import COLUMNS, HISTORY, Row

BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
INVERSE, BOLD, DIM, RED, YELLOW = "\x1b[7m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m"
NARROWEST_NAME, COMFORTABLE_NAME = 10, 15
PAUSED = " (paused)"


class Column(NamedTuple):
    """name: of the value; kind: name, rate, count, age or spark; drop: the higher, the earlier it is omitted."""

    title: str
    name: str
    kind: str = "count"
    drop: int = 0


WIDTHS = {"rate": 9, "count": 9, "age": 8, "spark": HISTORY // 2}
VIEWS: dict[str, tuple[Column, ...]] = {
    "topics": (Column("TOPIC", "topic", "name"), Column("IN/S", "in", "rate"), Column("DEPTH", "depth"),
               Column("IN CHANS", "held", drop=1), Column("CHANNELS", "channels", drop=3),
               Column("OLDEST", "oldest", "age", 2), Column("MESSAGES", "messages", drop=4),
               Column("IDS", "ids", drop=6), Column("REPEATS", "repeats", drop=7),
               Column("FORGOTTEN", "forgotten", drop=8), Column("RATE", "in", "spark", 5)),
    "channels": (Column("TOPIC", "topic", "name"), Column("CHANNEL", "channel", "name"),
                 Column("IN/S", "in", "rate", 2), Column("OUT/S", "out", "rate"), Column("DEPTH", "depth"),
                 Column("IN FLIGHT", "in flight", drop=1),
                 Column("DEFERRED", "deferred", drop=4), Column("REQ/S", "requeued", "rate", 6),
                 Column("TMO/S", "timed out", "rate", 5),
                 *(Column(title, field, drop=8 + at) for at, (field, title) in enumerate(COLUMNS.items())),
                 Column("CLIENTS", "clients", drop=3),
                 Column("OLDEST", "oldest", "age", 2), Column("RATE", "in", "spark", 7),
                 Column("RULES", "rules", "name", 8 + len(COLUMNS))),
    "clients": (Column("CLIENT", "client", "name"), Column("ADDRESS", "address", "name"),
                Column("TOPIC", "topic", "name", 4), Column("CHANNEL", "channel", "name", 3),
                Column("MSGS/S", "in", "rate"), Column("FIN/S", "out", "rate", 1), Column("RDY", "ready", drop=2),
                Column("IN FLIGHT", "in flight"), Column("REQ/S", "requeued", "rate", 5),
                Column("AGENT", "agent", "name", 6)),
    "nodes": (Column("NODE", "node", "name"), Column("VERSION", "version", "name", 4),
              Column("HEALTH", "health", "name"),
              Column("TOPICS", "topics", drop=2), Column("CHANNELS", "channels", drop=3),
              Column("CLIENTS", "clients", drop=1), Column("IN/S", "in", "rate"), Column("OUT/S", "out", "rate"),
              Column("DEPTH", "depth"), Column("UP", "up", "age", 5)),
}


def fitting(columns: tuple[Column, ...], width: int) -> list[tuple[Column, int]]:
    """The columns that fit, with their widths: names share the width not used by numbers."""
    left = list(columns)
    while True:
        names = sum(column.kind == "name" for column in left)
        room = width - sum(WIDTHS.get(column.kind, 0) for column in left) - 2 * (len(left) - 1)
        droppable = [column for column in left if column.drop]
        if room >= names * COMFORTABLE_NAME or not droppable:
            break
        left.remove(max(droppable, key=lambda column: column.drop))
    each = max(room // max(names, 1), NARROWEST_NAME)
    return [(column, WIDTHS.get(column.kind, each)) for column in left]


def titles(fitted: list[tuple[Column, int]], sort: str, backward: bool, unicode: bool) -> str:
    """The header line."""
    mark = ("▼" if unicode else "v") if backward else ("▲" if unicode else "^")
    cells = []
    for column, width in fitted:
        title = column.title + (mark if column.name == sort and column.kind != "spark" else "")
        cells.append(title[:width].ljust(width) if column.kind in ("name", "spark") else title[:width].rjust(width))
    return "  ".join(cells)


def line(row: Row, fitted: list[tuple[Column, int]], unicode: bool) -> str:
    """A row. One with an error shows only that."""
    if "error" in row.values:
        return f"{visible(row.key[-1])}  {visible(str(row.values['error']))}"
    cells = []
    for column, width in fitted:
        if column.kind == "spark":
            cells.append(spark(row.history, width, unicode))
            continue
        value = row.values.get(column.name, "")
        if isinstance(value, str):
            mark = PAUSED if row.paused and value == row.key[-1] else ""
            text = cell(cell(visible(value), width - len(mark)).rstrip() + mark, width)
            cells.append(text if column.kind == "name" else " " * width)
        elif column.kind == "age":
            cells.append(age(value).rjust(width))
        else:
            cells.append(number(value, column.kind == "rate").rjust(width))
    return "  ".join(cells)


def cell(text: str, width: int) -> str:
    """Pads or cuts a text to this width."""
    if text.isascii():
        return text[:width - 1] + "~" if len(text) > width else text.ljust(width)
    taken, used = [], 0
    for char in text:
        wide = 2 if unicodedata.east_asian_width(char) in "WF" else 0 if unicodedata.combining(char) else 1
        if used + wide > width:
            break
        taken.append(char)
        used += wide
    return "".join(taken) + " " * (width - used)


def number(value: float, is_rate: bool = False) -> str:
    """Formats a number in at most nine characters."""
    if is_rate and 0 < value < 10:
        return f"{value:.1f}"
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G")):
        if value >= size:
            return f"{value / size:.2f}{unit}"
    return f"{value:,.0f}" if value < 1e7 else f"{value / 1e6:,.1f}M"


def age(seconds: float) -> str:
    """Formats a time in two units; empty below 0."""
    if seconds < 0:
        return ""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for size, unit, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // smaller:02}{small}"
    return f"{whole}s"


def spark(history: tuple[float, ...], width: int, unicode: bool) -> str:
    """The latest rates as bars, the newest at the right."""
    bars = BARS if unicode else PLAIN_BARS
    shown = history[-width:]
    highest = max(shown, default=0.0)
    if highest <= 0:
        return " " * width
    steps = len(bars) - 1
    return "".join(bars[max(1, round(value / highest * steps)) if value else 0] for value in shown).rjust(width)
