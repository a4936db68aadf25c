"""`nsqc spark replay`: an archive, or a time range of it, back to a topic."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from nsqc.spark.jobs import checks, handshake, running, words
from nsqc.spark.jobs.ledger import Ledger
from nsqc.spark.jobs.voice import Voice


@words.peered
def command(
    archive: checks.Archive,
    peers: words.Peers,
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
    with running.failures() as voice:
        voice.done = lambda: "nothing was published"
        handshake.shake(peers.options, voice.note)
        ledger = Ledger(archive)
        to = topic or ledger.read().topic
        if not peers.create and (known := handshake.known(peers.options, peers.http, voice.note)):
            known.need_topic(to)
        with running.session("nsqc replay", voice) as spark:
            replay(spark, ledger, {**peers.options, "topic": to}, (start, end), voice, rate, speed)
    return 0


def replay(spark: Any, ledger: Ledger, options: dict[str, str], span: tuple[int | None, int | None],
           voice: Voice, rate: float | None, speed: float | None) -> int:
    """Publishes; how many messages. Raises JobError where that is not what the archive has."""
    from pyspark.sql import functions

    from nsqc.spark.jobs import publishing, reading

    started = time.monotonic()
    voice.says("counting the archive's messages")
    with reading.rows(spark, ledger, *span) as frame:
        expected, first = frame.select(functions.count("*"), functions.min(functions.unix_micros("timestamp"))).first()
        if not expected:
            voice.tell("the archive has no messages of that time")
            return 0
        wanted = [functions.col("value")]
        if speed is not None:
            wanted.append((functions.unix_micros("timestamp") - first).alias("due"))
        ordered = in_order(spark, frame).select(*wanted)
        totals = publishing.publish(spark, ordered, options, voice, rate, speed, expected)
    publishing.tell(voice, totals, options["topic"], started)
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
