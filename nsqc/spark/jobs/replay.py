"""`nsqc spark replay`: republishes an archive, a log-backed topic, or a range of it, to a topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import typer

from nsqc import paths
from nsqc.spark.jobs import arguments, handshake, nodes, running, streaming
from nsqc.spark.jobs.ledger import Ledger
from nsqc.spark.jobs.nodes import Logs
from nsqc.spark.jobs.running import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Span = tuple[int | None, int | None]    # microseconds since 1970


@arguments.with_nsqd
def command(
    cluster: arguments.Cluster,
    archive: Annotated[str | None, typer.Argument(
        help="the archive, a path or a URI", metavar="FOLDER", parser=arguments.place,
        callback=arguments.archive_or_none)] = None,
    from_topic: Annotated[str | None, typer.Option(
        help="instead of an archive: a log-backed topic", callback=arguments.topic)] = None,
    topic: Annotated[str | None, typer.Option(
        help="the topic to publish to; default: the archived one", callback=arguments.topic)] = None,
    since: arguments.Since = None,
    until: arguments.Until = None,
    from_offset: Annotated[str | None, typer.Option(
        help=f"start at this offset of the log: {nodes.OFFSETS}", callback=arguments.reads(nodes.read_offsets),
        metavar="OFFSET")] = None,
    to_offset: Annotated[str | None, typer.Option(
        help="stop before this offset of the log", callback=arguments.reads(nodes.read_offsets),
        metavar="OFFSET")] = None,
    rate: arguments.Rate = None,
    speed: Annotated[float | None, typer.Option(
        help="replay at the original pace times this factor: 1 for the original pace, 60 for an hour in a minute",
        min=0.000001, callback=arguments.finite)] = None,
) -> int:
    """Republish the messages of an archive, or of a log-backed topic.

    Messages of one nsqd keep the order in which it accepted them; there is no order between nsqd. Delivery is at least
    once: failed tasks are repeated. Runs as fast as possible without --rate and --speed.
    """
    if rate is not None and speed is not None:
        raise typer.BadParameter("give --rate or --speed, not both")
    start, end = arguments.micros_range(since, until)
    if start is not None and end is not None and start >= end:
        raise typer.BadParameter(f"--from {since} is not before --to {until}")
    if (archive is None) == (from_topic is None):
        raise typer.BadParameter("give one of FOLDER and --from-topic")
    if from_topic is None and (from_offset or to_offset):
        raise typer.BadParameter("--from-offset and --to-offset need --from-topic: archives have --from and --to")
    if from_topic is not None and topic in (None, from_topic):
        raise typer.BadParameter(f"give another --topic than {from_topic}: all of its channels would get everything "
                                 "again; to move one of them, use /channel/seek")
    with running.failures() as progress:
        progress.summary = lambda: "nothing was published"
        handshake.check_nsqd(cluster.options, progress.note)
        if from_topic is not None:
            assert topic is not None
            if not cluster.create:
                nodes.require_topic(cluster, topic, progress.note)
            selected = nodes.fixed(cluster, [from_topic], progress.note, from_offset, to_offset)
            source, to = from_log(selected, (start, end), is_timed=speed is not None), topic
        elif paths.is_foreign(str(archive)):
            if topic is None:
                raise running.JobError(f"{archive} does not have the name of its topic: give --topic")
            if not cluster.create:
                nodes.require_topic(cluster, topic, progress.note)
            source, to = from_files(str(archive), (start, end), is_timed=speed is not None), topic
        else:
            ledger = Ledger(str(archive))
            source, to = from_archive(ledger, (start, end), is_timed=speed is not None), topic or ledger.read().topic
            if not cluster.create and (existing := nodes.existing(cluster, progress.note)):
                existing.require_topic(to)
        with running.session("nsqc replay", progress, nodes.SETTINGS) as spark:
            replay(spark, source, {**cluster.options, "topic": to}, progress, rate, speed)
    return 0


class Rows(NamedTuple):
    """The input. total: number of rows, if known without Spark. name, part: the source of the rows, for people."""

    frame: DataFrame
    name: str
    part: str
    total: int | None = None


Source: TypeAlias = "Callable[[SparkSession], AbstractContextManager[Rows]]"


def from_archive(ledger: Ledger, span: Span, is_timed: bool) -> Source:
    """The rows of an archive, in order."""
    @contextmanager
    def read(spark: SparkSession) -> Iterator[Rows]:
        from nsqc.spark.jobs import archive_rows

        with archive_rows.read(spark, ledger, *span) as frame:
            yield Rows(in_order(spark, frame, is_timed), "archive", "time range")
    return read


def from_files(folder: str, span: Span, is_timed: bool) -> Source:
    """The rows of an archive in another file system, in order."""
    @contextmanager
    def read(spark: SparkSession) -> Iterator[Rows]:
        from nsqc.spark.jobs import archive_rows

        where = streaming.location(spark, folder)
        if not streaming.has_files(spark, where):
            raise running.JobError(f"{folder} is not an archive")
        frame = archive_rows.within(streaming.files(spark, where, archive_rows.SCHEMA), *span)
        yield Rows(in_order(spark, frame, is_timed), "archive", "time range")
    return read


def from_log(selected: Logs, span: Span, is_timed: bool) -> Source:
    """The rows of a log, in order."""
    @contextmanager
    def read(spark: SparkSession) -> Iterator[Rows]:
        frame = nodes.rows(spark, selected, "value binary, timestamp timestamp, nsqd string, offset bigint", *span)
        if is_timed:
            # Two logs in one task must be merged by time.
            yield Rows(in_order(spark, frame.selectExpr("*", "'' id"), is_timed), "log", "range")
        else:
            yield Rows(frame, "log", "range", selected.messages if span == (None, None) else None)
    return read


def replay(spark: SparkSession, source: Source, options: dict[str, str], progress: Progress, rate: float | None,
           speed: float | None) -> int:
    """Publishes; returns the number of messages. Raises JobError if the source has another number."""
    from pyspark.sql import functions

    from nsqc.spark.jobs import publishing

    started = time.monotonic()
    with source(spark) as (frame, name, part, expected):
        first = 0
        if expected is None or speed is not None:
            progress.show(f"counting the {name}'s messages")
            expected, first = frame.select(functions.count("*"),
                                           functions.min(functions.unix_micros("timestamp"))).collect()[0]
        if not expected:
            progress.result(f"the {name} has no messages of that {part}")
            return 0
        columns = [functions.col("value")]
        if speed is not None:
            columns.append((functions.unix_micros("timestamp") - first).alias("due"))
        totals = publishing.publish(spark, frame.select(*columns), options, progress, rate, speed, expected)
    publishing.report(progress, totals, options["topic"], started)
    if totals.rows != expected:
        raise running.JobError(f"the {name} has {expected:,} messages of that {part}, {totals.rows:,} were "
                               "published")
    return totals.rows


def in_order(spark: SparkSession, frame: DataFrame, is_timed: bool) -> DataFrame:
    """The rows of each nsqd in one partition, in the order it accepted them: by offset if read from a log, otherwise by
    time, and by id within a microsecond. is_timed: by time first."""
    slots = spark.sparkContext.defaultParallelism
    order = ("timestamp", "offset", "id") if is_timed else ("offset", "timestamp", "id")
    return frame.repartition(slots, "nsqd").sortWithinPartitions(*order)


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("replay")
