"""`nsqc spark replay`: an archive, or a time range of it, back to a topic."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from nsqc.spark.jobs import checks, handshake, running, arguments
from nsqc.spark.jobs.ledger import Ledger
from nsqc.spark.jobs.progress import Progress


@arguments.with_nsqd
def command(
    archive: checks.Archive,
    peers: arguments.Cluster,
    topic: Annotated[str | None, typer.Option(
        help="the topic to publish to; by default the one that was archived", callback=checks.topic)] = None,
    since: checks.Since = None,
    until: checks.Until = None,
    rate: checks.Rate = None,
    speed: Annotated[float | None, typer.Option(
        help="at the pace at which they were published, times this: 1 as it was, 60 an hour in a minute",
        min=0.000001)] = None,
) -> int:
    """Publish the messages of an archive again.

    In the order in which each nsqd took them at the time; messages that came through different nsqd are in no order to
    each other. At least once: a task that fails is done again. Without --rate and --speed as fast as it goes.
    """
    if rate is not None and speed is not None:
        raise typer.BadParameter("give --rate or --speed, not both")
    start, end = since and checks.micros(since), until and checks.micros(until)
    if start is not None and end is not None and start >= end:
        raise typer.BadParameter(f"--from {since} is not before --to {until}")
    with running.failures() as progress:
        progress.summary = lambda: "nothing was published"
        handshake.shake(peers.options, progress.note)
        ledger = Ledger(archive)
        to = topic or ledger.read().topic
        if not peers.create and (known := handshake.known(peers.options, peers.http, progress.note)):
            known.need_topic(to)
        with running.session("nsqc replay", progress) as spark:
            replay(spark, ledger, {**peers.options, "topic": to}, (start, end), progress, rate, speed)
    return 0


def replay(spark: Any, ledger: Ledger, options: dict[str, str], span: tuple[int | None, int | None],
           progress: Progress, rate: float | None, speed: float | None) -> int:
    """Publishes; how many messages. Raises JobError where that is not what the archive has."""
    from pyspark.sql import functions

    from nsqc.spark.jobs import publishing, archive_rows

    started = time.monotonic()
    progress.show("counting the archive's messages")
    with archive_rows.read(spark, ledger, *span) as frame:
        expected, first = frame.select(functions.count("*"), functions.min(functions.unix_micros("timestamp"))).first()
        if not expected:
            progress.result("the archive has no messages of that time")
            return 0
        wanted = [functions.col("value")]
        if speed is not None:
            wanted.append((functions.unix_micros("timestamp") - first).alias("due"))
        ordered = in_order(spark, frame).select(*wanted)
        totals = publishing.publish(spark, ordered, options, progress, rate, speed, expected)
    publishing.tell(progress, totals, options["topic"], started)
    if totals.rows != expected:
        raise running.JobError(f"the archive has {expected:,} messages of that time, published were {totals.rows:,}")
    return totals.rows


def in_order(spark: Any, frame: Any) -> Any:
    """The rows of one nsqd in one partition, as it took them: by time, and by id within the same microsecond."""
    slots = spark.sparkContext.defaultParallelism
    return frame.repartition(slots, "nsqd").sortWithinPartitions("timestamp", "id")


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("replay")
