"""`nsqc spark report`: archives as tables and charts in one HTML file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import typer

from nsqc.spark.jobs import checks, running, arguments
from nsqc.spark.jobs.ledger import Ledger


def each_archive(paths: list[Path]) -> list[Path]:
    """A callback for typer."""
    return [checks.archive(path) for path in paths]


def writable(path: Path) -> Path:
    """A callback for typer."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"{path} is no file in a folder that is there")
    return path


@arguments.without_nsqd
def command(
    archives: Annotated[list[Path], typer.Argument(help="the archives", metavar="FOLDER", callback=each_archive)],
    to: Annotated[Path, typer.Option(
        "--out", help="the file to write", metavar="FILE", callback=writable)] = Path("report.html"),
    since: checks.Since = None,
    until: checks.Until = None,
    title: Annotated[str | None, typer.Option(help="by default the topics")] = None,
) -> int:
    """Draw a report of archives.

    Volume over time, latency from publishing to archiving, attempts, size by topic and nsqd, the largest messages; one
    HTML file that needs nothing else.
    """
    start, end = since and checks.micros(since), until and checks.micros(until)
    with running.failures() as progress:
        progress.summary = lambda: f"{to} is as it was"
        ledgers = [Ledger(archive) for archive in archives]
        with running.session("nsqc report", progress) as spark, ExitStack() as stack:
            rows = sum(ledger.read().rows for ledger in ledgers)
            progress.show(tasks(spark, f"reading archives with {rows:,} messages"))
            from nsqc.spark.jobs import metrics, page, archive_rows

            frames = [stack.enter_context(archive_rows.read(spark, ledger, start, end)) for ledger in ledgers]
            found = metrics.count(reduce(lambda one, other: one.unionByName(other), frames))
        if found is None:
            raise running.JobError("there are no messages of that time to report on")
        topics = ", ".join(sorted({ledger.read().topic for ledger in ledgers}))
        to.write_text(page.page(found, title or f"Messages of {topics}"), encoding="utf-8")
        half, most, nearly, longest = map(page.span, found.late)
        progress.result(f"{found.rows:,} messages with {page.size(found.bytes)} from {page.moment(found.first)} to "
                   f"{page.moment(found.last)}; latency: median {half}, 95 % {most}, 99 % {nearly}, longest {longest}")
        progress.result(f"{to} written")
    return 0


def tasks(spark: Any, doing: str) -> Callable[[], str]:
    """For Progress.show(): how much of what Spark works on now is done."""
    tracker = spark.sparkContext.statusTracker()

    def text() -> str:
        stages = list(filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds())))
        total = sum(stage.numTasks for stage in stages)
        return f"{doing}: {sum(stage.numCompletedTasks for stage in stages)} of {total} tasks" if total else doing
    return text


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("report")
