"""`nsqc spark report`: archives as tables and charts in one HTML file."""

from __future__ import annotations

from contextlib import ExitStack
from functools import reduce
from pathlib import Path
from typing import Annotated

import typer

from nsqc.spark.jobs import checks, running
from nsqc.spark.jobs.ledger import Ledger


def each_archive(paths: list[Path]) -> list[Path]:
    """A callback for typer."""
    return [checks.archive(path) for path in paths]


def writable(path: Path) -> Path:
    """A callback for typer."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"{path} is no file in a folder that is there")
    return path


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
    with running.failures():
        ledgers = [Ledger(archive) for archive in archives]
        with running.session("nsqc report") as spark, ExitStack() as stack:
            from nsqc.spark.jobs import figures, page, reading

            frames = [stack.enter_context(reading.rows(spark, ledger, start, end)) for ledger in ledgers]
            found = figures.count(reduce(lambda one, other: one.unionByName(other), frames))
        if found is None:
            raise running.JobError("there are no messages of that time to report on")
        topics = ", ".join(sorted({ledger.read().topic for ledger in ledgers}))
        to.write_text(page.page(found, title or f"Messages of {topics}"), encoding="utf-8")
        half, most, nearly, longest = map(page.span, found.late)
        print(f"{found.rows:,} messages with {page.size(found.bytes)} from {page.moment(found.first)} to "
              f"{page.moment(found.last)}; latency: median {half}, 95 % {most}, 99 % {nearly}, longest {longest}")
        print(f"{to} written")
    return 0


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("report")
