"""`nsqc spark archive`: a topic to Parquet files by day, each message once.

    nsqd --(staged, then finished)--> staging log --(batches)--> Parquet files --(commit)--> ledger

A batch that was interrupted has the same rows when it is planned again, and the ledger takes a batch once. So what is
in the staging log comes into the archive exactly once, through any crash; what nsqd delivers twice is dropped by its id
as long as the staging log remembers that.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import nsqc.spark
from nsqc.spark import options
from nsqc.spark.jobs import checks, handshake, running, arguments
from nsqc.spark.jobs.compact import MIB, TARGET_MIB, compact
from nsqc.spark.jobs.ledger import Ledger
from nsqc.spark.jobs.progress import Rate, Progress, counted
from nsqc.wire.names import is_ephemeral

BATCH_ROWS = 1_000_000
DAY_MICROS = 86_400_000_000
POLL_SECONDS = 0.2
# Footers then have the least and greatest timestamp, and other readers need not know an old form.
SETTINGS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", "spark.sql.parquet.compression.codec": "zstd"}


def lasting_channel(name: str) -> str:
    """A callback for typer."""
    checks.reads(values.read_name)(name)
    if is_ephemeral(name.encode()):
        raise typer.BadParameter(f"{name} would lose its messages whenever the job is not connected")
    return name


@arguments.with_nsqd
def command(
    archive: Annotated[Path, typer.Argument(help="the archive; --create makes one", metavar="FOLDER")],
    topic: checks.Topic,
    peers: arguments.Cluster,
    channel: Annotated[str, typer.Option(help="the channel to consume", callback=lasting_channel)] = "archive",
    until_idle: Annotated[bool, typer.Option(
        "--until-idle", help="end when nsqd has nothing more; else run until SIGTERM")] = False,
    idle: Annotated[float, typer.Option(
        help="seconds in which nsqd sends nothing before --until-idle ends", min=0.01, max=3600)] = 2.0,
    every: Annotated[float, typer.Option(help="seconds from batch to batch, when it runs on", min=0.1)] = 10.0,
    batch_rows: Annotated[int, typer.Option(help="messages in a batch at most", min=1)] = BATCH_ROWS,
    max_in_flight: Annotated[int, typer.Option(help="messages in flight for each nsqd", min=1, max=1_000_000)] = 2500,
    small_files: Annotated[bool, typer.Option(
        "--compact/--no-compact", help="at the end, make few large files of many small ones")] = True,
) -> int:
    """Archive a topic as Parquet files by day.

    Everything is in one folder: the files, the ledger that says which count, checkpoint and staging log. A new run goes
    on where the last one ended, however that was.
    """
    source = {**peers.options, "topic": topic, "channel": channel, "maxRowsPerBatch": str(batch_rows),
              "maxInFlight": str(max_in_flight), "idleMs": str(round(idle * 1000)),
              "failWhenUnreachable": "0" if not until_idle else "300"}
    with running.failures() as progress:
        progress.summary = lambda: "nothing was archived"
        if not peers.create and not (archive / "_ledger.json").exists():
            raise running.JobError(f"{archive} is no archive: --create begins one there; if it has moved, or its disk "
                                   "is not mounted, say where it is")
        ledger = None if peers.create else Ledger(archive, topic)
        handshake.shake(peers.options, progress.note)
        if not peers.create and (known := handshake.known(peers.options, peers.http, progress.note)):
            known.need_channel(topic, channel)
        ledger = ledger or Ledger(archive, topic)
        with ledger.job("archive") as space, running.session("nsqc archive", progress, SETTINGS) as spark:
            store = Store(ledger, space, progress.result)
            progress.count = lambda: store.rows
            progress.summary = lambda: (f"archived {store.rows:,} messages in {store.files:,} files; "
                                  f"the archive has {ledger.read().rows:,}")
            trigger = {"availableNow": True} if until_idle else {"processingTime": f"{every} seconds"}
            stopped = run(spark, store, source, trigger, progress)
        if stopped and until_idle:
            raise running.Stopped(stopped)
        progress.result(progress.summary())
        if small_files:
            progress.show("compacting")
            done = compact(ledger, TARGET_MIB * MIB)
            if done.before:
                progress.result(f"{done.before:,} small files are now {done.after:,}")
    return 0


class Store:
    """Puts the batches of a stream into an archive. One batch at a time, and none once it is closed."""

    def __init__(self, ledger: Ledger, space: Path, tell: Callable[[str], Any] = print):
        self.ledger = ledger
        self.space = space
        self.tell = tell
        self.state = ledger.folder / "_state"
        self.rows = self.files = 0      # put in so far
        self.busy = threading.Lock()    # held while a batch is stored
        self.is_closed = False
        self._check_state()

    def _check_state(self) -> None:
        """Raises JobError where rows could come in twice."""
        known = self.ledger.read().batches
        if known and self.query not in known:
            raise running.JobError(
                f"{self.state / 'checkpoint'} is not the one that {self.ledger.folder} was written with: messages "
                "could come in twice. Put it back, or archive into another folder")

    @property
    def query(self) -> str:
        """The query's id, which is the checkpoint's; empty before there is one."""
        try:
            return json.loads((self.state / "checkpoint" / "metadata").read_text())["id"]
        except FileNotFoundError:
            return ""

    def put(self, frame: Any, batch: int) -> None:
        """For foreachBatch."""
        with self.busy:
            if self.is_closed:
                # Not a mere return: Spark would take the batch for done.
                raise running.JobError("the archive job is ending; the batch is left to the next run")
            new = self._write(frame, batch)
            before = self.ledger.read().rows
            if new and not self.ledger.commit(new, batch=(self.query, batch)):
                self.tell(f"batch {batch} is in the archive already")
                return
            rows = self.ledger.read().rows - before
            self.rows, self.files = self.rows + rows, self.files + len(new)
            if rows:
                self.tell(f"batch {batch}: {rows:,} messages in {len(new):,} files")

    def _write(self, frame: Any, batch: int) -> dict[str, Path]:
        """Writes the batch beside the archive: what its files shall be called there, and where they are."""
        from pyspark.sql import functions

        place = self.space / str(batch)
        shutil.rmtree(place, ignore_errors=True)
        micros = functions.unix_micros("timestamp")
        dated = frame.withColumns({
            "archived_at": functions.timestamp_micros(functions.lit(time.time_ns() // 1000)),
            "date": functions.date_from_unix_date(functions.floor(micros / DAY_MICROS).cast("int")),
        })
        dated.write.partitionBy("date").parquet(f"file://{place}")
        found = sorted(place.glob("date=*/*.parquet"))
        return {f"{path.parent.name}/{batch:012d}-{self.query[:8]}-{number}.parquet": path
                for number, path in enumerate(found)}

    def close(self) -> None:
        """Waits for the batch that is being stored, and lets no other begin."""
        with self.busy:
            self.is_closed = True


def run(spark: Any, store: Store, source: dict[str, str], trigger: dict[str, Any], progress: Progress) -> int:
    """Archives until nothing comes or a signal does: its number, or 0. Raises what Spark raises."""
    stop = threading.Event()
    hurry = running.Hurry(progress)
    numbers: list[int] = []

    def end(number: int) -> None:
        numbers.append(number)
        stop.set()
        hurry.count(number)

    with running.signals(end):
        frame = spark.readStream.format("nsq").options(**source, stagingDir=str(store.state / "staging")).load()
        query = (frame.writeStream.foreachBatch(store.put).trigger(**trigger)
                 .option("checkpointLocation", f"file://{store.state / 'checkpoint'}").start())
        rate = Rate()
        progress.show(lambda: "; ".join([counted("archived", lambda: store.rows, rate)(), *troubles(query)]))
        try:
            while not stop.is_set() and not query.awaitTermination(POLL_SECONDS):
                pass
        finally:
            store.close()
            query.stop()
    return numbers[0] if numbers else 0


def troubles(query: Any) -> list[str]:
    """What its source says of nsqd that are down."""
    try:
        return [f"{len(source['nsqdDown'])} nsqd down: {'; '.join(source['nsqdDown'].values())}"
                for source in nsqc.spark.metrics(query) if source["nsqdDown"]]
    except Exception:
        return []       # the query has ended, or Java has


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("archive")
