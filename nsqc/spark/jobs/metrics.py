"""The metrics of a report, computed by Spark from the rows of archives and logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE, HOUR, DAY = 60, 3600, 86400
WIDTHS = (1, 5, 10, 30, MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY)
MOST_BUCKETS = 96
SHARES = (0.5, 0.95, 0.99)
ACCURACY = 1000     # of percentiles: a thousandth of the ranks
LARGEST = 10
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


def count(frame: DataFrame) -> Metrics | None:
    """The metrics of rows with the columns of an archive, archived_at null in those of a log; None if there are no
    rows."""
    from pyspark.sql import functions as f

    sized = frame.select(
        "topic", "nsqd", "id", "attempts", "value", f.length("value").alias("size"),
        (f.unix_micros("timestamp") / 1e6).alias("seconds"),
        ((f.unix_micros("archived_at") - f.unix_micros("timestamp")) / 1e6).alias("late"))
    percentiles = f.percentile_approx("late", list(SHARES), ACCURACY)
    rows, size, first, last, late, latest = sized.agg(
        f.count("*"), f.sum("size"), f.min("seconds"), f.max("seconds"), percentiles, f.max("late")).collect()[0]
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
        largest(sized))


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


def largest(sized: DataFrame) -> list[Body]:
    """The largest messages."""
    from pyspark.sql import functions as f

    beginning = f.substring("value", 1, SHOWN).alias("beginning")
    rows = sized.select("topic", "id", "nsqd", "seconds", "size", beginning).orderBy(
        f.desc("size"), "seconds", "id").limit(LARGEST).collect()
    return [Body(row.topic, row.id, row.nsqd, row.seconds, row.size, bytes(row.beginning).decode(errors="replace"))
            for row in rows]
