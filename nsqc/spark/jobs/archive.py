"""`nsqc spark archive`: stores a topic in Parquet files by day, each message once.

    topic in a log --(by offset)-----------------------------> batches --> Parquet files --(commit)--> ledger
    channel --(staged, then finished)--> staging log --------> batches --> the same

A repeated batch has the same rows, and the ledger accepts a batch once. So the log, or the staging log, is archived
exactly once, through any crash. A message that nsqd delivers to a channel twice is dropped by its id as long as the
staging log remembers it.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsqc import paths
from nsqc.spark.jobs import arguments, handshake, lag, nodes, running, streaming
from nsqc.spark.jobs.arguments import Cluster
from nsqc.spark.jobs.compact import MIB, TARGET_MIB, compact
from nsqc.spark.jobs.ledger import Ledger, need_empty
from nsqc.spark.jobs.running import JobError, Progress, Rate, counted
from nsqc.spark.values import read_name
from nsqc.wire.outside import decode
from nsqc.wire.parser import is_ephemeral

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# ====================================================================== archive input
# The input of an archive job: the topic's log by offset, or a channel.
#
# An archive never changes its input: its checkpoint fits nothing else.

CHANNEL = "archive"
IN_FLIGHT, IDLE_SECONDS = 2500, 2.0


def log_before(archive: Path) -> bool | None:
    """Whether an archive was read from a log so far; None: it is new. Raises JobError."""
    state = archive / "_state"
    if (state / "staging" / "log.json").exists():
        return False
    if (state / "checkpoint" / "offsets").is_dir():
        known = lag.read(state / "checkpoint")
        if known.batch is not None:
            return not known.consumes
    return None


def from_log(archive: Path, cluster: Cluster, topic: str, channel: str | None, note: Callable[[str], None]) -> bool:
    """Whether to read the log of the topic. Raises JobError if that is impossible or unclear."""
    before = log_before(archive)
    if before and channel is not None:
        raise JobError(f"{archive} was read from the log of {topic} by offset: omit --channel, or archive into "
                       "another folder")
    if before is not None or channel is not None:
        return bool(before)
    try:
        with nodes.found(cluster, note) as (apis, _):
            having = {name: api for name, api in apis.items() if topic in api.topics()} or apis
            kinds = {name: "log" if api.rule(topic).log else "memory" for name, api in having.items()}
    except JobError as error:
        if cluster.http and "nsqd" in cluster.options and "tls" not in cluster.options:
            raise
        note(f"cannot determine whether topic {topic} is log-backed; consuming its channel {CHANNEL}: {error}")
        return False
    if len(set(kinds.values())) > 1:
        shown = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        raise JobError(f"topic {topic} is log-backed on only some nsqd ({shown}): set one rule on all of them (PUT "
                       f"/topic/rules), or consume it by --channel {CHANNEL}")
    return set(kinds.values()) == {"log"}


def of_channel(cluster: Cluster, topic: str, channel: str | None, until_idle: bool, idle: float | None,
               max_in_flight: int | None) -> dict[str, str]:
    """The options of a consuming source."""
    return {**cluster.options, "topic": topic, "channel": channel or CHANNEL,
            "maxInFlight": str(max_in_flight or IN_FLIGHT),
            "idleMs": str(round((IDLE_SECONDS if idle is None else idle) * 1000)),
            "failWhenUnreachable": str(streaming.PATIENCE_SECONDS) if until_idle else "0"}


def of_log(archive: Path, cluster: Cluster, topic: str, until_idle: bool, idle: float | None,
           max_in_flight: int | None, note: Callable[[str], None]) -> dict[str, str]:
    """The options of a source that reads the log, after checking it. Raises JobError, typer.BadParameter."""
    for name, value in (("--idle", idle), ("--max-in-flight", max_in_flight)):
        if value is not None:
            raise typer.BadParameter(f"{name} is for consuming a channel; topic {topic} is log-backed and read by "
                                     "offset")
    source = nodes.source(cluster, [topic])
    if cluster.create:
        create(cluster, topic, note)
    all_nodes = ("--until-idle needs all nsqd" if until_idle else
                 "the first run needs all nsqd" if log_before(archive) is None else "")
    nodes.look(cluster, [topic], note, all_nodes)
    with nodes.found(cluster, lambda text: None) as (apis, _):
        if not all(api.rule(topic).stays for api in apis.values()):
            note(f"topic {topic} has no retain_time: messages finished by all channels may be removed before they are "
                 "archived")
    return {**source, **streaming.patience(until_idle), "startingOffsets": "earliest"}


def create(cluster: Cluster, topic: str, note: Callable[[str], None]) -> None:
    """Creates the topic on all nodes, if none has it. Raises JobError."""
    with nodes.found(cluster, note) as (apis, _):
        if not any(topic in api.topics() for api in apis.values()):
            for api in apis.values():
                api.create(topic)


# ====================================================================== archive

BATCH_ROWS = 1_000_000
DAY_MICROS = 86_400_000_000
# Footers then have the lowest and highest timestamp, and other readers need not support an obsolete format.
SETTINGS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", "spark.sql.parquet.compression.codec": "zstd"}


def lasting_channel(name: str | None) -> str | None:
    """A typer callback: a channel that is not ephemeral, or none."""
    arguments.reads(read_name)(name)
    if name is not None and is_ephemeral(name.encode()):
        raise typer.BadParameter(f"{name} would lose its messages whenever the job is disconnected")
    return name


@arguments.with_nsqd
def command(
    place: Annotated[str, typer.Argument(
        help="the archive, a path or a URI such as s3a://lake/orders; --create creates one", metavar="FOLDER",
        parser=arguments.place)],
    topic: arguments.Topic,
    cluster: arguments.Cluster,
    channel: Annotated[str | None, typer.Option(
        help="the channel to consume; default: read the topic's log by offset, or, if it is in memory, consume channel "
        f"{CHANNEL}", callback=lasting_channel)] = None,
    until_idle: Annotated[bool, typer.Option(
        "--until-idle", help="stop when nsqd has no more messages, instead of running until SIGTERM")] = False,
    idle: Annotated[float | None, typer.Option(
        help="seconds without a message after which --until-idle stops, if a channel is consumed; default: "
        f"{IDLE_SECONDS:g}", min=0.01, max=3600, callback=arguments.finite)] = None,
    every: arguments.Every = 10.0,
    batch_rows: Annotated[int, typer.Option(help="maximum messages per batch", min=1)] = BATCH_ROWS,
    max_in_flight: Annotated[int | None, typer.Option(
        help=f"messages in flight per nsqd, if a channel is consumed; default: {IN_FLIGHT}", min=1,
        max=1_000_000)] = None,
    small_files: Annotated[bool, typer.Option(
        "--compact/--no-compact", help="at the end, merge small files into large ones")] = True,
) -> int:
    """Archive a topic as Parquet files by day.

    One folder has everything: the files, the ledger of committed files, checkpoint and staging log. A new run continues
    where the last one ended, even after a crash.
    """
    with running.failures() as progress:
        progress.summary = lambda: "nothing was archived"
        if paths.is_foreign(place):
            if channel is not None:
                raise typer.BadParameter(f"--channel needs an archive on this machine; {place} is read from the log")
            in_lake(place, cluster, topic, until_idle, every, batch_rows, progress)
            return 0
        archive = Path(place)
        if not cluster.create and not (archive / "_ledger.json").exists():
            raise running.JobError(f"{archive} is not an archive: --create creates one there; if it was moved, or its "
                                   "disk is not mounted, give its path")
        if not (archive / "_ledger.json").exists():
            need_empty(archive.absolute())
        ledger = None if cluster.create else Ledger(archive, topic)
        handshake.check_nsqd(cluster.options, progress.note)
        if from_log(archive, cluster, topic, channel, progress.note):
            source = of_log(archive, cluster, topic, until_idle, idle, max_in_flight, progress.note) | {
                "maxOffsetsPerTrigger": str(batch_rows)}
        else:
            source = of_channel(cluster, topic, channel, until_idle, idle, max_in_flight) | {
                "maxRowsPerBatch": str(batch_rows)}
            if not cluster.create and (existing := nodes.existing(cluster, progress.note)):
                existing.require_channel(topic, source["channel"])
        ledger = ledger or Ledger(archive, topic)
        with ledger.job("archive") as space, running.session("nsqc archive", progress, SETTINGS) as spark:
            store = Store(ledger, space, progress.result)
            progress.count = lambda: store.rows
            progress.summary = lambda: (f"archived {store.rows:,} messages in {store.files:,} files; "
                                  f"the archive has {ledger.read().rows:,}")
            stopped = run(spark, store, source, until_idle, every, progress)
        if stopped and until_idle:
            raise running.Stopped(stopped)
        progress.result(progress.summary())
        if small_files:
            progress.show("compacting")
            done = compact(ledger, TARGET_MIB * MIB)
            if done.before:
                progress.result(f"{done.before:,} small files are now {done.after:,}")
    return 0


def in_lake(folder: str, cluster: Cluster, topic: str, until_idle: bool, every: float, batch_rows: int,
            progress: Progress) -> None:
    """Archives the log of a topic to a URI: Spark lists the files, as the ledger does in a folder of this machine.
    Raises JobError."""
    handshake.check_nsqd(cluster.options, progress.note)
    if cluster.create:
        create(cluster, topic, progress.note)
    nodes.look(cluster, [topic], progress.note, "--until-idle needs all nsqd" if until_idle else "")
    source = {**nodes.source(cluster, [topic]), **streaming.patience(until_idle), "startingOffsets": "earliest",
              "maxOffsetsPerTrigger": str(batch_rows)}
    with running.session("nsqc archive", progress, SETTINGS) as spark:
        where = streaming.location(spark, folder)
        if not cluster.create and not streaming.has_files(spark, where):
            raise JobError(f"{folder} is not an archive: --create creates one there")
        frame = dated(spark.readStream.format("nsq").options(**source).load())
        writer, checkpoint = streaming.into_files(frame, where, "parquet", ["date"])
        streaming.need_all(spark, cluster, [topic], checkpoint)
        batches = streaming.Batches()
        progress.count, progress.summary = (lambda: batches.rows), (lambda: f"archived {batches.rows:,} messages")
        writer = writer.queryName(f"nsqc archive of {topic}")
        stopped = streaming.follow(writer, checkpoint, until_idle, every, progress, batches)
    if stopped and until_idle:
        raise running.Stopped(stopped)
    progress.result(progress.summary())


def dated(frame: DataFrame, archived_at: Column | None = None) -> DataFrame:
    """The columns of an archive; archived_at: now by default."""
    from pyspark.sql import functions

    days = functions.floor(functions.unix_micros("timestamp") / DAY_MICROS).cast("int")
    return frame.withColumns({
        "archived_at": functions.current_timestamp() if archived_at is None else archived_at,
        "date": functions.date_from_unix_date(days)})


class Store:
    """Adds the batches of a stream to an archive: one at a time, and none after close()."""

    def __init__(self, ledger: Ledger, space: Path, report: Callable[[str], None] = print):
        self.ledger = ledger
        self.space = space
        self.report = report
        self.state = ledger.folder / "_state"
        self.rows = self.files = 0      # added by this run
        self.busy = threading.Lock()    # held while a batch is stored
        self.is_closed = False
        self._check_state()

    def _check_state(self) -> None:
        """Raises JobError if rows could be added twice."""
        batches = self.ledger.read().batches
        if batches and self.query not in batches:
            raise running.JobError(
                f"{self.state / 'checkpoint'} is not the checkpoint that {self.ledger.folder} was written with: "
                "messages could be archived twice. Restore it, or archive into another folder")

    @property
    def query(self) -> str:
        """The id of the query and its checkpoint; empty if there is none yet."""
        try:
            return str(decode((self.state / "checkpoint" / "metadata").read_text())["id"])
        except FileNotFoundError:
            return ""

    def put(self, frame: DataFrame, batch: int) -> None:
        """For foreachBatch."""
        with self.busy:
            if self.is_closed:
                # Do not just return: Spark would consider the batch done.
                raise running.JobError("the archive job is stopping; the next run will archive the batch")
            new = self._write(frame, batch)
            before = self.ledger.read().rows
            if new and not self.ledger.commit(new, batch=(self.query, batch)):
                self.report(f"batch {batch} is already in the archive")
                return
            rows = self.ledger.read().rows - before
            self.rows, self.files = self.rows + rows, self.files + len(new)
            if rows:
                self.report(f"batch {batch}: {rows:,} messages in {len(new):,} files")

    def _write(self, frame: DataFrame, batch: int) -> dict[str, Path]:
        """Writes the batch outside of the archive; returns its files by their names in the archive."""
        from pyspark.sql import functions

        place = self.space / str(batch)
        shutil.rmtree(place, ignore_errors=True)
        now = functions.timestamp_micros(functions.lit(time.time_ns() // 1000))
        dated(frame, now).write.partitionBy("date").parquet(f"file://{place}")
        paths = sorted(place.glob("date=*/*.parquet"))
        return {f"{path.parent.name}/{batch:012d}-{self.query[:8]}-{number}.parquet": path
                for number, path in enumerate(paths)}

    def close(self) -> None:
        """Waits for the current batch, and refuses others."""
        with self.busy:
            self.is_closed = True


def run(spark: SparkSession, store: Store, source: dict[str, str], until_idle: bool, every: float,
        progress: Progress) -> int:
    """Archives until the topic is idle or a signal arrives; returns its number, or 0. Raises Spark's exceptions."""
    if "channel" in source:
        source = source | {"stagingDir": str(store.state / "staging")}
    frame = spark.readStream.format("nsq").options(**source).load()
    writer = frame.writeStream.foreachBatch(store.put).queryName(f"nsqc archive of {source['topic']}")
    archived = counted("archived", lambda: store.rows, Rate())
    return streaming.follow(writer, f"file://{store.state / 'checkpoint'}", until_idle, every, progress,
                            lambda query: archived(), store.close)


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("archive")
