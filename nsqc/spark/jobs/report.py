"""`nsqc spark report`: tables and charts of archives, and of log-backed topics, in one HTML file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsqc.spark import values
from nsqc.spark.jobs import arguments, nodes, page, running
from nsqc.spark.jobs.ledger import Ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def each_archive(paths: list[Path] | None) -> list[Path]:
    """A typer callback: all are archives."""
    return [arguments.archive(path) for path in paths or ()]


@arguments.with_nodes
def command(
    cluster: arguments.Cluster | None,
    archives: Annotated[list[Path] | None, typer.Argument(
        help="the archives", metavar="[FOLDER]...", parser=arguments.path, callback=each_archive)] = None,
    topic: arguments.Topics = None,
    to: Annotated[Path, typer.Option(
        "--out", help="the file to write", metavar="FILE", parser=arguments.path, callback=arguments.writable,
    )] = Path("report.html"),
    since: arguments.Since = None,
    until: arguments.Until = None,
    title: Annotated[str | None, typer.Option(help="default: the topics")] = None,
) -> int:
    """Create a report of archives, and of log-backed topics.

    Shows volume over time, latency from publishing to archiving, attempts, size by topic and nsqd, and the largest
    messages, in one self-contained HTML file. Latency and attempts are unknown for log-backed topics (--topic, --nsqd).
    """
    start, end = arguments.micros_range(since, until)
    if not archives and topic is None:
        raise typer.BadParameter("give archives, or --topic for a log-backed topic, or both")
    if (topic is None) != (cluster is None):
        raise typer.BadParameter("--topic needs --nsqd or --nsqlookupd: a log-backed topic is read from there")
    with running.failures() as progress:
        progress.summary = lambda: f"{to} was not written"
        ledgers = [Ledger(archive) for archive in archives or ()]
        names = list(values.read_names(topic)) if topic else []
        found = nodes.fixed(cluster, names, progress.note) if cluster else None
        with running.session("nsqc report", progress, nodes.SETTINGS) as spark, ExitStack() as stack:
            rows = sum(ledger.read().rows for ledger in ledgers) + (found.messages if found else 0)
            progress.show(tasks(spark, f"reading {rows:,} messages"))
            from nsqc.spark.columns import LOG
            from nsqc.spark.jobs import archive_rows

            frames = [stack.enter_context(archive_rows.read(spark, ledger, start, end)) for ledger in ledgers]
            if found:
                frames.append(nodes.rows(spark, found, LOG, start, end).selectExpr(
                    "*", "cast(null as timestamp) archived_at"))
            counted = page.count(reduce(lambda left, right: left.unionByName(right), frames))
        if counted is None:
            raise running.JobError("no messages in that time range")
        topics = ", ".join(sorted({ledger.read().topic for ledger in ledgers} | set(names)))
        to.write_text(page.page(counted, title or f"Messages of {topics}"), encoding="utf-8")
        first, last = page.moment(counted.first), page.moment(counted.last)
        told = f"{counted.rows:,} messages with {page.size(counted.bytes)} from {first} to {last}"
        if counted.late:
            half, most, nearly, longest = map(page.span, counted.late)
            told += f"; latency: median {half}, 95 % {most}, 99 % {nearly}, longest {longest}"
        progress.result(told)
        progress.result(f"{to} written")
    return 0


def tasks(spark: SparkSession, doing: str) -> Callable[[], str]:
    """For Progress.show(): completed tasks of Spark's running ones."""
    tracker = spark.sparkContext.statusTracker()

    def text() -> str:
        stages = list(filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds())))
        total = sum(stage.numTasks for stage in stages)
        return f"{doing}: {sum(stage.numCompletedTasks for stage in stages)} of {total} tasks" if total else doing
    return text


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("report")
