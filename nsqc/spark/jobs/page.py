"""A report: its metrics, and its page. Imports Spark only to compute the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from nsqc import charts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# ====================================================================== metrics
# The metrics of a report, computed by Spark from the rows of archives and logs.

MINUTE, HOUR, DAY = 60, 3600, 86400
WIDTHS = (1, 5, 10, 30, MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY)
MOST_BUCKETS = 96
SHARES = (0.5, 0.95, 0.99)
ACCURACY = 1000     # of percentiles: a thousandth of the ranks
LARGEST = 10
ORIGINS = 50
SHOWN = 60          # bytes of a large body
LATENCY_STEPS = (0.001, 0.01, 0.1, 1, 10, MINUTE, 10 * MINUTE, HOUR, 10 * HOUR, DAY)


@dataclass(frozen=True)
class Bucket:
    """Messages published from start on (seconds since 1970) for one bucket's width. latency: seconds, by SHARES; empty
    if none of them has been archived."""

    start: int
    rows: int
    bytes: int
    latency: tuple[float, ...]


@dataclass(frozen=True)
class Source:
    """The messages of one topic from one nsqd. Sizes in bytes."""

    topic: str
    nsqd: str
    rows: int
    bytes: int
    largest: int


@dataclass(frozen=True)
class Body:
    """One large message."""

    topic: str
    id: str
    nsqd: str
    seconds: float
    size: int
    beginning: str


@dataclass(frozen=True)
class Letters:
    """Dead letters of one origin. first, last: when they died, seconds since 1970."""

    topic: str
    channel: str
    reason: str
    rows: int
    first: float
    last: float


@dataclass(frozen=True)
class Metrics:
    """Everything in a report. first, last: lowest and highest timestamp, seconds since 1970; late: latency by SHARES,
    then the maximum, empty for messages from logs only, which have no archiving time; steps: messages by latency,
    between each of LATENCY_STEPS and the previous one, then the rest; attempts: of messages that came through a
    channel."""

    rows: int
    bytes: int
    first: float
    last: float
    late: tuple[float, ...]
    width: int
    buckets: list[Bucket]
    steps: list[int]
    attempts: dict[int, int]
    sources: list[Source]
    bodies: list[Body]
    letters: list[Letters]


def count(frame: DataFrame) -> Metrics | None:
    """The metrics of rows with the columns of an archive, archived_at null in those of a log; None if there are no
    rows."""
    from pyspark.sql import functions as f

    sized = frame.select(
        "topic", "nsqd", "id", "attempts", "value", "origin", f.length("value").alias("size"),
        (f.unix_micros("timestamp") / 1e6).alias("seconds"),
        ((f.unix_micros("archived_at") - f.unix_micros("timestamp")) / 1e6).alias("late"))
    percentiles = f.percentile_approx("late", list(SHARES), ACCURACY)
    rows, size, first, last, late, latest, dead = sized.agg(
        f.count("*"), f.sum("size"), f.min("seconds"), f.max("seconds"), percentiles, f.max("late"),
        f.count("origin")).collect()[0]
    if not rows:
        return None
    width = bucket_width(last - first)
    return Metrics(
        rows, size, first, last, (*late, latest) if late else (), width,
        [Bucket(int(row[0]) * width, row[1], row[2], tuple(row[3] or ())) for row in sized.groupBy(
            f.floor(f.col("seconds") / width)).agg(f.count("*"), f.sum("size"), percentiles).orderBy(f.asc_nulls_last(
                f.floor(f.col("seconds") / width))).collect()],
        steps(sized),
        {row.attempts: row["count"] for row in sized.where("attempts > 0").groupBy("attempts").count().orderBy(
            "attempts").collect()},
        [Source(*row) for row in sized.groupBy("topic", "nsqd").agg(
            f.count("*"), f.sum("size").alias("sum"), f.max("size")).orderBy(f.desc("sum")).collect()],
        largest(sized), letters(sized) if dead else [])


def bucket_width(span: float) -> int:
    """Seconds per bucket: the smallest of WIDTHS with few enough buckets, or whole weeks."""
    for width in WIDTHS:
        if span / width < MOST_BUCKETS - 1:
            return width
    return int(span / (7 * DAY) / (MOST_BUCKETS - 1) + 1) * 7 * DAY


def steps(sized: DataFrame) -> list[int]:
    """The number of archived rows by latency."""
    from pyspark.sql import functions as f

    step: Column = sum((f.when(f.col("late") >= limit, 1).otherwise(0) for limit in LATENCY_STEPS), start=f.lit(0))
    rows: dict[int, int] = {row[0]: row[1] for row in sized.where("late is not null").groupBy(step).count().collect()}
    return [rows.get(number, 0) for number in range(len(LATENCY_STEPS) + 1)]


def letters(sized: DataFrame) -> list[Letters]:
    """The dead letters by origin, the most frequent first."""
    from pyspark.sql import functions as f

    rows = sized.where("origin is not null").groupBy("origin.topic", "origin.channel", "origin.reason").agg(
        f.count("*").alias("rows"), f.min("seconds"), f.max("seconds")).orderBy(f.desc("rows")).limit(ORIGINS).collect()
    return [Letters(*row) for row in rows]


def largest(sized: DataFrame) -> list[Body]:
    """The largest messages."""
    from pyspark.sql import functions as f

    beginning = f.substring("value", 1, SHOWN).alias("beginning")
    rows = sized.select("topic", "id", "nsqd", "seconds", "size", beginning).orderBy(
        f.desc("size"), "seconds", "id").limit(LARGEST).collect()
    return [Body(row.topic, row.id, row.nsqd, row.seconds, row.size, bytes(row.beginning).decode(errors="replace"))
            for row in rows]


# ====================================================================== page
# A report as one self-contained HTML file: no script, no font, no image.

STYLE = """
:root { --paper: #fff; --ink: #1b2330; --soft: #5d6879; --rule: #e3e7ee;
        --s0: #2f6fb3; --s1: #d98324; --s2: #b0354a; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14181f; --ink: #e8ebf0; --soft: #9aa5b5; --rule: #2a313c;
          --s0: #6aa5e3; --s1: #e8a455; --s2: #e2788a; }
}
body { margin: 0 auto; padding: 32px 24px 64px; max-width: 920px; background: var(--paper); color: var(--ink);
       font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 16px; margin: 40px 0 8px; }
p { color: var(--soft); margin: 4px 0 12px; }
dl { display: flex; flex-wrap: wrap; gap: 12px 40px; margin: 24px 0 0; }
dt { color: var(--soft); font-size: 13px; } dd { margin: 0; font-size: 22px; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } .grid { stroke: var(--rule); }
text { font: 11px system-ui, sans-serif; fill: var(--soft); } .name { font-weight: 600; }
.bar { fill: var(--s0); } .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.line.s0 { stroke: var(--s0); } .line.s1 { stroke: var(--s1); } .line.s2 { stroke: var(--s2); }
.dot.s0, .name.s0 { fill: var(--s0); } .dot.s1, .name.s1 { fill: var(--s1); } .dot.s2, .name.s2 { fill: var(--s2); }
.narrow { display: none; } h1, dd, td { overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; font-weight: 600; color: var(--soft); } th, td { padding: 5px 14px 5px 0; }
tr + tr { border-top: 1px solid var(--rule); } td { vertical-align: top; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
@media (max-width: 640px) {
  body { padding: 20px 16px 40px; } dl { gap: 10px 28px; } dd { font-size: 19px; }
  .broad { display: none; } .narrow { display: block; } th { display: none; }
  table, tbody, tr, td { display: block; } tr { padding: 8px 0; }
  td, td.number { display: flex; gap: 12px; padding: 2px 0; text-align: left; white-space: normal; }
  td::before { content: attr(data-head); flex: 0 0 84px; color: var(--soft); }
}
"""


def page(metrics: Metrics, title: str) -> str:
    """The whole file."""
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{moment(metrics.first)} to {moment(metrics.last)}, times in UTC</p>",
             totals(metrics), volume(metrics), *([latency(metrics)] if metrics.late else []),
             *([attempts(metrics)] if metrics.attempts else []), *([origins(metrics)] if metrics.letters else []),
             sources(metrics), bodies(metrics)]
    return whole(title, parts)


def whole(title: str, parts: Sequence[str]) -> str:
    """A file of these parts."""
    return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>\n" + "\n".join(parts)
            + "\n</body></html>\n")


# ---------------------------------------------------------------------- sections

def totals(metrics: Metrics) -> str:
    """The most important numbers."""
    shown = {"messages": f"{metrics.rows:,}", "in bodies": size(metrics.bytes)}
    if metrics.late:
        shown |= zip(("latency, median", "95 %", "99 %", "longest"), map(span, metrics.late), strict=True)
    if metrics.attempts:
        shown["more than one attempt"] = f"{sum(count for times, count in metrics.attempts.items() if times > 1):,}"
    return "<dl>" + "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
                            for name, value in shown.items()) + "</dl>"


def volume(metrics: Metrics) -> str:
    """Messages over time."""
    labels, rows = over_time(metrics)
    counts = [row.rows if row else 0 for row in rows]
    tips = [f"{label}: {row.rows if row else 0:,} messages, {size(row.bytes if row else 0)}"
            for label, row in zip(labels, rows, strict=True)]
    return (f"<h2>Messages published, per {span(metrics.width)}</h2>"
            + charts.bars(labels, counts, number, "messages over time", tips))


def latency(metrics: Metrics) -> str:
    """Charts of the time from a message's timestamp to its archiving."""
    labels, rows = over_time(metrics)
    series = {name: [row.latency[place] if row and row.latency else None for row in rows]
              for place, name in enumerate(("median", "95 %", "99 %"))}
    bounds = [span(step) for step in LATENCY_STEPS]
    names = [f"< {bounds[0]}", *(f"{low} – {high}" for low, high in pairwise(bounds)),
             f"≥ {bounds[-1]}"]
    steps = [(name, count) for name, count in zip(names, metrics.steps, strict=True) if count]
    return ("<h2>Latency of consumption</h2><p>From a message's timestamp, set by nsqd when it was published, to the "
            "batch that archived it, by time of publishing.</p>"
            + charts.lines(labels, series, span, "latency over time")
            + charts.bars([name for name, _ in steps], [count for _, count in steps], number, "messages by latency"))


def attempts(metrics: Metrics) -> str:
    """Messages by number of deliveries."""
    return ("<h2>Attempts</h2>" + charts.bars([str(times) for times in metrics.attempts],
                                              list(metrics.attempts.values()), number, "messages by attempts"))


def origins(metrics: Metrics) -> str:
    """A table of dead letters."""
    return "<h2>Dead letters by origin</h2>" + table(
        ["topic", "channel", "reason", "messages", "first", "last"],
        ([letter.topic, letter.channel, letter.reason, f"{letter.rows:,}", moment(letter.first), moment(letter.last)]
         for letter in metrics.letters), text_columns=3)


def sources(metrics: Metrics) -> str:
    """A table of topics and nsqd by size."""
    return "<h2>Size by topic and nsqd</h2>" + table(
        ["topic", "nsqd", "messages", "bytes", "share", "mean", "largest"],
        ([source.topic, source.nsqd, f"{source.rows:,}", size(source.bytes),
          f"{source.bytes / max(metrics.bytes, 1):.1%}", size(source.bytes / source.rows), size(source.largest)]
         for source in metrics.sources), text_columns=2)


def bodies(metrics: Metrics) -> str:
    """The largest messages."""
    return "<h2>Largest messages</h2>" + table(
        ["topic", "published", "id", "begins with", "size"],
        ([body.topic, moment(body.seconds), body.id, body.beginning, size(body.size)] for body in metrics.bodies),
        text_columns=4)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int) -> str:
    """A table; columns after the first text_columns are numbers."""
    def line(cells: Sequence[str], kind: str) -> str:
        cells_html = []
        for place, (head, cell) in enumerate(zip(heads, cells, strict=True)):
            marks = ' class="number"' if place >= text_columns else ""
            if kind == "td":
                marks += f' data-head="{escape(head)}"'     # on a phone, shown instead of the table head
            cells_html.append(f"<{kind}{marks}>{escape(cell)}</{kind}>")
        return "<tr>" + "".join(cells_html) + "</tr>"
    return f'<table>{line(heads, "th")}{"".join(line(row, "td") for row in rows)}</table>'


# ---------------------------------------------------------------------- values

def over_time(metrics: Metrics) -> tuple[list[str], list[Bucket | None]]:
    """A label for each bucket from the first to the last, and the bucket; None if nothing was published."""
    known = {bucket.start: bucket for bucket in metrics.buckets}
    starts = range(min(known), max(known) + 1, metrics.width)
    form = "%Y-%m-%d" if metrics.width >= DAY else "%d %b %H:%M" if metrics.last - metrics.first > DAY else (
        "%H:%M" if metrics.width >= MINUTE else "%H:%M:%S")
    return [datetime.fromtimestamp(start, UTC).strftime(form) for start in starts], [known.get(at) for at in starts]


def moment(seconds: float) -> str:
    """A time to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """A duration in its largest unit."""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1, "s"), (0.001, "ms")):
        if abs(seconds) >= unit:
            return f"{seconds / unit:.3g} {name}"
    return "0" if not seconds else f"{seconds * 1e6:.3g} µs"


def size(count: float) -> str:
    """Bytes in their largest unit."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"


def number(count: float) -> str:
    """A short number for a scale."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 10 * unit or (count >= unit and count % unit == 0):
            return f"{count / unit:.4g} {name}"
    return f"{count:,.4g}"
