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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from nsqc.spark import options
from nsqc.spark.jobs import checks, handshake, nsqd_http, running, arguments
from nsqc.spark.jobs.backfill_log import BackfillLog
from nsqc.spark.jobs.progress import Progress


@arguments.with_nsqd
def command(
    data_path: Annotated[Path, typer.Argument(help="the dead nsqd's data path, or a copy",
                                              metavar="FOLDER", callback=checks.folder)],
    peers: arguments.Cluster,
    topic: Annotated[list[str] | None, typer.Option(
        help="only this topic; may be repeated", callback=checks.reads(values.read_name))] = None,
    channel: Annotated[list[str] | None, typer.Option(
        help="of the channels' queues only this one's; may be repeated", callback=checks.reads(values.read_name))] = None,
    topic_queue: Annotated[bool, typer.Option(help="the topics' own queues, too")] = True,
    to_topic: Annotated[str | None, typer.Option(
        help="publish to this topic instead of the one a message was in", callback=checks.topic)] = None,
    read_all: Annotated[bool, typer.Option(
        "--all", help="also what was read already and is still in the files")] = False,
    skip_bad: Annotated[bool, typer.Option(
        "--skip-bad", help="read around damage instead of failing")] = False,
    again: Annotated[bool, typer.Option(
        "--again", help="publish what an earlier run has published already")] = False,
    max_msg_size: Annotated[int, typer.Option(help="the largest message of both nsqd, in bytes", min=1)] = 1 << 20,
    rate: checks.Rate = None,
) -> int:
    """Publish the disk queues of a dead nsqd to a live one.

    Each message once, to its topic, from where every channel gets a copy. Refused while the data path is in use.
    Timestamps, ids and attempts are new; delays of deferred messages are over. The queues are not changed; what was
    published is noted beside them.
    """
    with running.failures() as progress, unused(data_path):
        progress.summary = lambda: "nothing was published"
        source = {"path": str(data_path.absolute()), "range": "all" if read_all else "unread",
                  "onBadRecord": "skip" if skip_bad else "fail", "maxMsgSize": str(max_msg_size)}
        record = Record(data_path)
        spans = found(source, topic, channel, topic_queue)
        if not again:
            record.refuse_again(spans)
        handshake.shake(peers.options, progress.note)
        addresses = list(peers.http) or nsqd_http.http_addresses(peers.options)
        for address in addresses:
            nsqd_http.get(address, "/info")
        targets = {to_topic} if to_topic else {span.queue.topic for span in spans}
        for target in () if peers.create else sorted(targets):
            handshake.Known(addresses).need_topic(target)
        if not spans:
            progress.result("there is nothing to publish")
            return 0
        with running.session("nsqc backfill", progress) as spark:
            sink = {**peers.options, "maxMsgSize": str(max_msg_size),
                    "maxBodySize": str(max(5 << 20, 2 * max_msg_size))}
            wanted = chosen(spark.read.format("nsq_diskqueue").options(**source).load(), topic, channel, topic_queue)
            record.begin(spans, progress.note)
            is_whole = False
            try:
                backfill(spark, wanted, sink, to_topic, addresses, progress, rate)
                is_whole = True
            finally:
                record.end(progress.count(), is_whole)
    return 0


def found(source: dict[str, str], topics: list[str] | None, channels: list[str] | None,
          topic_queue: bool) -> list[Any]:
    """What is to be read: nsqc.spark.queue_files.Span. Raises JobError where there are no queues, or not those that are
    asked for."""
    from nsqc.spark import queue_files

    chosen = options.diskqueue(source)
    queues = archive.queues(chosen.path, chosen)
    if not queues:
        raise running.JobError(f"{chosen.path} has no disk queues: give the data path of an nsqd")
    known = {queue.topic for queue in queues}
    for topic in topics or ():
        if topic not in known:
            raise running.JobError(f"{chosen.path} has no queue of topic {topic}; "
                                   f"{handshake.choice('topics', topic, known)}")
    known = {queue.channel for queue in queues if queue.channel and (not topics or queue.topic in topics)}
    for channel in channels or ():
        if channel not in known:
            raise running.JobError(f"{chosen.path} has no queue of channel {channel}; "
                                   f"{handshake.choice('channels', channel, known)}")
    return [span for span in archive.spans(chosen) if (not topics or span.queue.topic in topics) and (
        topic_queue if span.queue.channel is None else not channels or span.queue.channel in channels)]


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
             progress: Progress, rate: float | None) -> int:
    """Publishes and compares the counts; how many messages. Raises JobError where they do not agree."""
    from pyspark.sql import functions

    from nsqc.spark.jobs import publishing

    started = time.monotonic()
    progress.show("counting the messages in the disk queues")
    for row in frame.groupBy("topic", "channel").count().orderBy("topic", "channel").collect():
        of_channel = f", channel {row.channel}" if row.channel else ""
        progress.result(f"read {row['count']:,} messages of {row.topic}{of_channel}")
    once = frame.dropDuplicates(["topic", "id"])
    target = functions.lit(to_topic) if to_topic else functions.col("topic")
    expected = Counter({row[0]: row[1] for row in once.groupBy(target).count().collect()})
    if not expected:
        progress.result("there is nothing to publish")
        return 0
    before = nsqd_http.counts(addresses, list(expected))
    totals = publishing.publish(spark, once.select("value", target.alias("topic")), sink, progress, rate,
                                total=expected.total())
    publishing.tell(progress, totals, ", ".join(sorted(expected)), started)
    compare(expected, totals.rows, before, nsqd_http.counts(addresses, list(expected)), progress.result)
    return totals.rows


def compare(expected: Counter[str], published: int, before: nsqd_http.Counts, after: nsqd_http.Counts,
            tell: Callable[[str], Any] = print) -> None:
    """Tells what the live nodes took. Raises JobError where that is too little."""
    if published != expected.total():
        raise running.JobError(f"{expected.total():,} messages were to be published, {published:,} were")
    for topic, count in sorted(expected.items()):
        taken = after.published[topic] - before.published[topic]
        depths = ", ".join(f"{name} {depth:,}" for name, depth in sorted(after.waiting.items())
                           if name.split(":")[0] == topic)
        tell(f"{topic}: {count:,} published, {taken:,} taken by nsqd"
             + (" (others publish to it, too)" if taken > count else "") + f"; depth: {depths}")
        if taken < count:
            raise running.JobError(f"{topic}: {count:,} messages were published, nsqd has taken {taken:,}")


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("backfill")
