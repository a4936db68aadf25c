"""`nsqc spark replay`: publishes an archive, or a time range of it, to a topic again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from nsqc.spark.jobs import arguments, checks, handshake, running, topics
from nsqc.spark.jobs.ledger import Ledger
from nsqc.spark.jobs.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@arguments.with_nsqd
def command(
    archive: arguments.Archive,
    cluster: arguments.Cluster,
    topic: Annotated[str | None, typer.Option(
        help="the topic to publish to; by default the one that was archived", callback=checks.topic)] = None,
    since: arguments.Since = None,
    until: arguments.Until = None,
    rate: arguments.Rate = None,
    speed: Annotated[float | None, typer.Option(
        help="at the original pace times this factor: 1 as it was, 60 an hour in a minute",
        min=0.000001)] = None,
) -> int:
    """Publish the messages of an archive again.

    In the order in which each nsqd accepted them; messages of different nsqd are not ordered among each other. At least
    once: a task that fails is run again. As fast as possible without --rate and --speed.
    """
    if rate is not None and speed is not None:
        raise typer.BadParameter("give --rate or --speed, not both")
    start, end = checks.micros_range(since, until)
    if start is not None and end is not None and start >= end:
        raise typer.BadParameter(f"--from {since} is not before --to {until}")
    with running.failures() as progress:
        progress.summary = lambda: "nothing was published"
        handshake.check_nsqd(cluster.options, progress.note)
        ledger = Ledger(archive)
        to = topic or ledger.read().topic
        if not cluster.create and (existing := topics.existing(cluster, progress.note)):
            existing.require_topic(to)
        with running.session("nsqc replay", progress) as spark:
            replay(spark, ledger, {**cluster.options, "topic": to}, (start, end), progress, rate, speed)
    return 0


def replay(spark: SparkSession, ledger: Ledger, options: dict[str, str], span: tuple[int | None, int | None],
           progress: Progress, rate: float | None, speed: float | None) -> int:
    """Publishes; how many messages. Raises JobError if the archive has another number."""
    from pyspark.sql import functions

    from nsqc.spark.jobs import archive_rows, publishing

    started = time.monotonic()
    progress.show("counting the archive's messages")
    with archive_rows.read(spark, ledger, *span) as frame:
        counted = frame.select(functions.count("*"), functions.min(functions.unix_micros("timestamp"))).collect()
        expected, first = counted[0]
        if not expected:
            progress.result("the archive has no messages of that time range")
            return 0
        columns = [functions.col("value")]
        if speed is not None:
            columns.append((functions.unix_micros("timestamp") - first).alias("due"))
        ordered = in_order(spark, frame).select(*columns)
        totals = publishing.publish(spark, ordered, options, progress, rate, speed, expected)
    publishing.report(progress, totals, options["topic"], started)
    if totals.rows != expected:
        raise running.JobError(f"the archive has {expected:,} messages of that time range, {totals.rows:,} were "
                               "published")
    return totals.rows


def in_order(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The rows of each nsqd in one partition, in the order it accepted them: by time, and by id within a
    microsecond."""
    slots = spark.sparkContext.defaultParallelism
    return frame.repartition(slots, "nsqd").sortWithinPartitions("timestamp", "id")


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("replay")
