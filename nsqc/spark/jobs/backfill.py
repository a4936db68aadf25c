"""`nsqc spark backfill`: publishes the disk queues of a dead nsqd to a live one.

A topic's queue has messages not yet passed to any channel, a channel's queue those pending for this channel only. nsqd
cannot publish to one channel: a topic's messages go to all of its channels. So each message in any queue of a topic is
published once, and every channel gets at least its missing messages. A channel that was ahead of another also gets the
other's missing messages a second time. --channel restricts this to the queues of some channels; --to-topic publishes to
another topic, invisible to other channels.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from nsqc.spark import options, values
from nsqc.spark.jobs import arguments, handshake, nodes, nsqd_http, running
from nsqc.spark.jobs.running import JobError, Progress
from nsqc.store.files import replace_file
from nsqc.wire.outside import Decoder, JSONError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nsqc.spark.queue_files import Span


# ====================================================================== backfill log
# A file in a dead nsqd's data path that records the published files, so that nothing is published twice by
# accident.
#
#     nsqc.backfill.json      a list of runs: begun, ended (null: it failed), published, and the bytes of each data file

NAME = "nsqc.backfill.json"


class Run(msgspec.Struct):
    """One run. begun, ended: ISO 8601; published: messages, a lower bound if the run failed; files: start and end
    offset by name of a data file."""

    begun: str
    ended: str | None
    published: int
    files: dict[str, tuple[int, int]]


decode_runs = Decoder(list[Run]).decode


class BackfillLog:
    """The runs of a data path. Raises JobError if the file is not readable."""

    def __init__(self, folder: Path):
        self.path = folder / NAME
        self.runs: list[Run] = []
        try:
            self.runs = decode_runs(self.path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, JSONError) as error:
            raise JobError(f"{self.path} is not readable, so earlier runs are unknown: {error}; without that "
                           "file, everything is published") from None

    def refuse_again(self, spans: Iterable[Span]) -> None:
        """Raises JobError if an earlier run published some of these files."""
        files = by_name(spans)
        for run in reversed(self.runs):
            if any(name in files and start < files[name][1] and files[name][0] < end
                   for name, (start, end) in run.files.items()):
                what = (f"was published on {run.begun} ({run.published:,} messages): --again publishes it once more"
                        if run.ended else
                        f"was being published on {run.begun} by a run that failed, after at least "
                        f"{run.published:,} messages: --again publishes everything, and those twice")
                raise JobError(f"{self.path.parent} {what}")

    def begin(self, spans: Iterable[Span], note: Callable[[str], None]) -> None:
        """Call it before the first message."""
        self.runs.append(Run(now(), None, 0, by_name(spans)))
        try:
            self._write()
        except OSError as error:
            note(f"cannot record this run, another run would publish the messages again: {error}")

    def end(self, published: int, is_whole: bool) -> None:
        """Call it after the last message, or when the run has failed."""
        self.runs[-1].published = published
        self.runs[-1].ended = now() if is_whole else None
        try:
            self._write()
        except OSError:
            return      # begin() has reported it

    def _write(self) -> None:
        replace_file(self.path, msgspec.json.format(msgspec.json.encode(self.runs), indent=1), mode=0o644)


def by_name(spans: Iterable[Span]) -> dict[str, tuple[int, int]]:
    """The ranges of bytes by file name."""
    return {os.path.basename(span.path): (span.start, span.limit) for span in spans}


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# ====================================================================== backfill

@arguments.with_nsqd
def command(
    data_path: Annotated[Path, typer.Argument(help="the dead nsqd's data path, or a copy",
                                              metavar="FOLDER", parser=arguments.path, callback=arguments.folder)],
    cluster: arguments.Cluster,
    topic: Annotated[list[str] | None, typer.Option(
        help="only this topic; may be repeated", callback=arguments.reads(values.read_name))] = None,
    channel: Annotated[list[str] | None, typer.Option(
        help="of channels' queues, only this one's; may be repeated",
        callback=arguments.reads(values.read_name))] = None,
    topic_queue: Annotated[bool, typer.Option(help="also the topics' own queues")] = True,
    to_topic: Annotated[str | None, typer.Option(
        help="publish to this topic instead of a message's own", callback=arguments.topic)] = None,
    read_all: Annotated[bool, typer.Option(
        "--all", help="also messages already read but still in the files")] = False,
    skip_bad: Annotated[bool, typer.Option(
        "--skip-bad", help="skip damage instead of failing")] = False,
    again: Annotated[bool, typer.Option(
        "--again", help="publish again, even after an earlier run")] = False,
    max_msg_size: Annotated[int, typer.Option(help="the largest message of both nsqd, in bytes", min=1)] = 1 << 20,
    rate: arguments.Rate = None,
) -> int:
    """Publish the disk queues of a dead nsqd to a live one.

    Publishes each message once, to its topic, where every channel gets a copy. Refused while the data path is in use.
    Timestamps, ids and attempts are new; deferred messages are due at once. The queues are not changed; the published
    files are recorded in the data path.
    """
    with running.failures() as progress, unused(data_path):
        progress.summary = lambda: "nothing was published"
        source = {"path": str(data_path.absolute()), "range": "all" if read_all else "unread",
                  "onBadRecord": "skip" if skip_bad else "fail", "maxMsgSize": str(max_msg_size)}
        past = BackfillLog(data_path)
        spans = spans_of(source, topic, channel, topic_queue)
        if not again:
            past.refuse_again(spans)
        handshake.check_nsqd(cluster.options, progress.note)
        addresses = list(cluster.http) or nsqd_http.http_addresses(cluster.options)
        for address in addresses:
            nsqd_http.get(address, "/info", cluster.secret)
        targets = {to_topic} if to_topic else {span.queue.topic for span in spans}
        for target in () if cluster.create else sorted(targets):
            nodes.Topics(addresses, cluster.secret).require_topic(target)
        if not spans:
            progress.result("there is nothing to publish")
            return 0
        with running.session("nsqc backfill", progress) as spark:
            sink = {**cluster.options, "maxMsgSize": str(max_msg_size),
                    "maxBodySize": str(max(5 << 20, 2 * max_msg_size))}
            frame = selected(spark.read.format("nsq_diskqueue").options(**source).load(), topic, channel, topic_queue)
            past.begin(spans, progress.note)
            is_whole = False
            try:
                backfill(spark, frame, sink, to_topic, addresses, cluster.secret, progress, rate)
                is_whole = True
            finally:
                past.end(progress.count(), is_whole)
    return 0


def spans_of(source: dict[str, str], only_topics: list[str] | None, only_channels: list[str] | None,
             topic_queue: bool) -> list[Span]:
    """The spans to read. Raises JobError if there are no queues, or not the requested ones."""
    from nsqc.spark import queue_files

    chosen = options.diskqueue(source)
    queues = queue_files.queues(chosen.path, chosen)
    if not queues:
        raise running.JobError(f"{chosen.path} has no disk queues: give the data path of an nsqd")
    names = {queue.topic for queue in queues}
    for topic in only_topics or ():
        if topic not in names:
            raise running.JobError(f"{chosen.path} has no queue of topic {topic}; "
                                   f"{nodes.choice('topics', topic, names)}")
    names = {queue.channel for queue in queues if queue.channel and (not only_topics or queue.topic in only_topics)}
    for channel in only_channels or ():
        if channel not in names:
            raise running.JobError(f"{chosen.path} has no queue of channel {channel}; "
                                   f"{nodes.choice('channels', channel, names)}")
    return [span for span in queue_files.spans(chosen) if (not only_topics or span.queue.topic in only_topics) and (
        topic_queue if span.queue.channel is None else not only_channels or span.queue.channel in only_channels)]


@contextmanager
def unused(data_path: Path) -> Iterator[None]:
    """Locks out every nsqd from a data path. Raises JobError if one uses it."""
    descriptor = os.open(data_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            # Shared, because the reader tests it, too; nsqd locks it exclusively.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise running.JobError(f"{data_path} is in use by an nsqd: stop it, or let it deliver its messages itself"
                                   ) from None
        yield
    finally:
        os.close(descriptor)


def selected(frame: DataFrame, only_topics: list[str] | None, only_channels: list[str] | None,
             topic_queue: bool) -> DataFrame:
    """The records of the requested queues."""
    from pyspark.sql import functions

    if only_topics:
        frame = frame.where(functions.col("topic").isin(only_topics))
    of_topic = functions.col("channel").isNull()
    of_channels = functions.col("channel").isin(only_channels) if only_channels else ~of_topic
    return frame.where(of_channels | of_topic if topic_queue else of_channels)


def backfill(spark: SparkSession, frame: DataFrame, sink: dict[str, str], to_topic: str | None, addresses: list[str],
             secret: nsqd_http.Secret, progress: Progress, rate: float | None) -> int:
    """Publishes and compares the counts; returns the number of messages. Raises JobError if they differ."""
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
    before = nsqd_http.counts(addresses, list(expected), secret)
    totals = publishing.publish(spark, once.select("value", target.alias("topic")), sink, progress, rate,
                                total=expected.total())
    publishing.report(progress, totals, ", ".join(sorted(expected)), started)
    after = nsqd_http.counts(addresses, list(expected), secret)
    compare(expected, totals.rows, before, after, progress.result)
    return totals.rows


def compare(expected: Counter[str], published: int, before: nsqd_http.Counts, after: nsqd_http.Counts,
            report: Callable[[str], None] = print) -> None:
    """Reports the messages accepted by the live nodes. Raises JobError if there are too few."""
    if published != expected.total():
        raise running.JobError(f"{expected.total():,} messages expected, {published:,} published")
    for topic, count in sorted(expected.items()):
        accepted = after.published[topic] - before.published[topic]
        depths = ", ".join(f"{name} {depth:,}" for name, depth in sorted(after.waiting.items())
                           if name.split(":")[0] == topic)
        report(f"{topic}: {count:,} published, {accepted:,} accepted by nsqd"
               + (" (it has other publishers, too)" if accepted > count else "") + f"; depth: {depths}")
        if accepted < count:
            raise running.JobError(f"{topic}: {count:,} messages were published, but nsqd accepted {accepted:,}")


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("backfill")
