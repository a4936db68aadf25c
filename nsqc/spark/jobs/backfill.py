"""`nsqc spark backfill`: what is left in the disk queues of a dead nsqd, published to a live one.

A topic's queue has messages that no channel has got yet, a channel's queue those that only this channel still has to
get. nsqd knows no publishing to one channel: what is published to a topic comes to all of its channels. So the rule is:
each message that is in any queue of a topic is published once, and every channel gets at least what it had not got. A
channel that was further ahead than another gets what the other lacked a second time. --channel takes the backlog of
some channels only; --to-topic brings that to a topic of its own, where no other channel sees it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from nsqc.spark import options
from nsqc.spark.jobs import checks, nodes, running


def command(
    data_path: Annotated[Path, typer.Argument(help="the dead nsqd's data path, or a copy",
                                              metavar="FOLDER", callback=checks.folder)],
    nsqd: checks.Nsqd = None,
    nsqlookupd: checks.Nsqlookupd = None,
    topic: Annotated[list[str] | None, typer.Option(
        help="only this topic; may be repeated", callback=checks.reads(options.name))] = None,
    channel: Annotated[list[str] | None, typer.Option(
        help="of the channels' queues only this one's; may be repeated", callback=checks.reads(options.name))] = None,
    topic_queue: Annotated[bool, typer.Option(help="the topics' own queues, too")] = True,
    to_topic: Annotated[str | None, typer.Option(
        help="publish to this topic instead of the one a message was in", callback=checks.topic)] = None,
    http: Annotated[str | None, typer.Option(
        help="HTTP addresses of the live nsqd, to count what they took; by default the port behind TCP's, or what "
        "nsqlookupd tells", callback=checks.reads(options.addresses))] = None,
    read_all: Annotated[bool, typer.Option(
        "--all", help="also what was read already and is still in the files")] = False,
    skip_bad: Annotated[bool, typer.Option(
        "--skip-bad", help="read around damage instead of failing")] = False,
    max_msg_size: Annotated[int, typer.Option(help="the largest message of both nsqd, in bytes", min=1)] = 1 << 20,
    rate: checks.Rate = None,
) -> int:
    """Publish the disk queues of a dead nsqd to a live one.

    Each message once, to its topic, from where every channel gets a copy. Refused while the data path is in use.
    Timestamps, ids and attempts are new; delays of deferred messages are over. The files are not changed.
    """
    peers = checks.peers(nsqd, nsqlookupd)
    with running.failures(), unused(data_path):
        addresses = [one.strip() for one in http.split(",")] if http else nodes.http_addresses(peers)
        for address in addresses:
            nodes.get(address, "/info")
        checks.reachable(peers)
        with running.session("nsqc backfill") as spark:
            source = {"path": str(data_path.absolute()), "range": "all" if read_all else "unread",
                      "onBadRecord": "skip" if skip_bad else "fail", "maxMsgSize": str(max_msg_size)}
            sink = {**peers, "maxMsgSize": str(max_msg_size), "maxBodySize": str(max(5 << 20, 2 * max_msg_size))}
            wanted = chosen(spark.read.format("nsq_diskqueue").options(**source).load(), topic, channel, topic_queue)
            backfill(spark, wanted, sink, to_topic, addresses, rate)
    return 0


@contextmanager
def unused(data_path: Path) -> Iterator[None]:
    """Keeps every nsqd out of a data path. Raises JobError where one has it."""
    descriptor = os.open(data_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            # Shared, so that the reader may look whether it is in use; nsqd takes it for itself alone.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise running.JobError(f"{data_path} is in use by an nsqd: stop it, or let it deliver its messages itself"
                                   ) from None
        yield
    finally:
        os.close(descriptor)


def chosen(frame: Any, topics: list[str] | None, channels: list[str] | None, topic_queue: bool) -> Any:
    """The records of the queues that are asked for."""
    from pyspark.sql import functions

    if topics:
        frame = frame.where(functions.col("topic").isin(topics))
    is_topics = functions.col("channel").isNull()
    of_channels = functions.col("channel").isin(channels) if channels else ~is_topics
    return frame.where(of_channels | is_topics if topic_queue else of_channels)


def backfill(spark: Any, frame: Any, sink: dict[str, str], to_topic: str | None, addresses: list[str],
             rate: float | None) -> int:
    """Publishes and compares the counts; how many messages. Raises JobError where they do not agree."""
    from pyspark.sql import functions

    from nsqc.spark.jobs import publishing

    started = time.monotonic()
    for row in frame.groupBy("topic", "channel").count().orderBy("topic", "channel").collect():
        print(f"read {row['count']:,} messages of {row.topic}" + (f", channel {row.channel}" if row.channel else ""))
    once = frame.dropDuplicates(["topic", "id"])
    target = functions.lit(to_topic) if to_topic else functions.col("topic")
    expected = Counter({row[0]: row[1] for row in once.groupBy(target).count().collect()})
    if not expected:
        print("there is nothing to publish")
        return 0
    before = nodes.counts(addresses, list(expected))
    totals = publishing.publish(spark, once.select("value", target.alias("topic")), sink, rate)
    publishing.tell(totals, ", ".join(sorted(expected)), started)
    compare(expected, totals.rows, before, nodes.counts(addresses, list(expected)))
    return totals.rows


def compare(expected: Counter[str], published: int, before: nodes.Counts, after: nodes.Counts) -> None:
    """Tells what the live nodes took. Raises JobError where that is too little."""
    if published != expected.total():
        raise running.JobError(f"{expected.total():,} messages were to be published, {published:,} were")
    for topic, count in sorted(expected.items()):
        taken = after.published[topic] - before.published[topic]
        depths = ", ".join(f"{name} {depth:,}" for name, depth in sorted(after.waiting.items())
                           if name.split(":")[0] == topic)
        print(f"{topic}: {count:,} published, {taken:,} taken by nsqd"
              + (" (others publish to it, too)" if taken > count else "") + f"; depth: {depths}")
        if taken < count:
            raise running.JobError(f"{topic}: {count:,} messages were published, nsqd has taken {taken:,}")


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("backfill")
