"""Publishes a frame, at a limited pace if requested, and counts what its tasks have published. Imports Spark: import it
when a job has a session.
"""

from __future__ import annotations

import secrets
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from nsqc.spark import options, sink
from nsqc.spark.jobs.running import Progress, Rate, counted
from nsqc.spark.sink import BatchWriter, Published, Totals
from nsqc.wire.outside import decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# ====================================================================== task rows
# Counts the rows published by running tasks: each reports to the driver with a datagram per acknowledgement.
#
# Spark itself reports only completed tasks, and nothing about cancelled ones. A lost datagram does no harm: the
# next one has the new sum.

RECORD = struct.Struct(">16sQQ")    # token, attempt id of the task, rows it has published
RECEIVE_BYTES = 1 << 20


class HasRows(Protocol):
    """The reported part of a task's totals."""

    rows: int


class TaskRows:
    """The driver's side. address: for RowReporter, as text."""

    def __init__(self, host: str) -> None:
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0][0]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._socket.bind((host, 0))
        self._token = secrets.token_bytes(16)
        self._rows: dict[int, int] = {}
        self.address = f"{self._token.hex()}@{host}:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, name="task_rows", daemon=True)
        self._thread.start()

    @property
    def rows(self) -> int:
        """Rows published by all tasks; a repeated task counts twice, as its rows were published twice."""
        return sum(list(self._rows.values()))

    def close(self) -> None:
        """Processes received datagrams until closed."""
        with suppress(OSError):
            self._socket.sendto(self._token, self._socket.getsockname())
            self._thread.join(2)
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                data = self._socket.recv(RECORD.size + 1)
            except OSError:
                return
            if data == self._token:     # from close(): only this process knows the token
                return
            if len(data) == RECORD.size:
                token, task, rows = RECORD.unpack(data)
                if token == self._token:
                    self._rows[task] = max(rows, self._rows.get(task, 0))


class RowReporter:
    """A task's side. Raises nothing: publishing does not depend on reaching the driver."""

    def __init__(self, address: str, task: int):
        token, _, endpoint = address.partition("@")
        host, _, port = endpoint.rpartition(":")
        self._token, self._task = bytes.fromhex(token), task
        self._socket: socket.socket | None = None
        with suppress(OSError):
            family, kind, _, _, driver = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
            self._socket = socket.socket(family, kind)
            self._socket.setblocking(False)
            self._socket.connect(driver)

    def report(self, totals: HasRows) -> None:
        """Sends the task's totals."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.send(RECORD.pack(self._token, self._task, totals.rows))

    def close(self) -> None:
        """Closes the socket. Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


# ====================================================================== paced sink
# The format nsq_paced: the sink of nsq with progress reports from tasks and an optional pace.
#
# rate: maximum rows per second, per task; or speed: each row at the time in its column due, microseconds after the
# start, divided by speed. reporter: where tasks report their rows (TaskRows).
#
# A task that waits has no outstanding answers: nsqd may close the connection, and rows with an unread acknowledgement
# would be published again.

STEP_SECONDS = 0.05     # rows due within this time are published together
IDLE_SECONDS = 5.0      # before a longer wait the connection is closed: nothing would answer heartbeats
LEAD_SECONDS = 0.5      # typical time until the tasks run


class PacedSink(DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "nsq_paced"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Raises OptionError."""
        given = dict(self.options)
        rate, speed, report_to = given.pop("rate", None), given.pop("speed", None), given.pop("reporter", "")
        chosen = options.sink(given)
        sink.check_schema(StructType([field for field in schema.fields if field.name != "due"]), chosen)
        return PacedWriter(chosen, float(rate) if rate else None, float(speed) if speed else None, report_to)


class PacedWriter(BatchWriter):
    """Starts on all executors shortly after its creation."""

    def __init__(self, chosen: options.Sink, rate: float | None, speed: float | None, report_to: str = ""):
        super().__init__(chosen)
        self.rate = rate
        self.speed = speed
        self.report_to = report_to      # TaskRows.address
        self.begin = time.time() + LEAD_SECONDS

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Runs on an executor."""
        context = TaskContext.get()
        assert context is not None, "called outside of a task"
        publisher = sink.Publisher(self.options, context.partitionId(), f"{self.token}/{context.partitionId()}")
        with ExitStack() as stack:
            stack.callback(publisher.close)
            if self.report_to:
                reporter = RowReporter(self.report_to, context.taskAttemptId())
                stack.callback(reporter.close)
                publisher.on_acknowledged = reporter.report
            for piece, due in self._pieces(iterator, context.attemptNumber() > 0):
                await_time(due, publisher)
                publisher.publish(piece)
            publisher.finish()
        return Published(publisher.totals)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Logs nothing: the job itself reports the published rows, including those of cancelled tasks."""

    def _pieces(self, batches: Iterator[pa.RecordBatch], again: bool) -> Iterator[tuple[pa.RecordBatch, float]]:
        if self.rate:
            return by_rate(batches, self.rate, self.begin)
        if not self.speed:
            return ((batch, 0.0) for batch in batches)
        batches, begin = begun(batches, self.begin, again)
        return by_due(batches, self.speed, begin)


def begun(batches: Iterator[pa.RecordBatch], plan: float, again: bool) -> tuple[Iterator[pa.RecordBatch], float]:
    """The same batches, and when to start: as planned, or when the first rows arrive if that is later; otherwise all
    rows due before would be published at once. A repeated task keeps the plan, to make up for lost time."""
    first = next(batches, None)
    if first is None:
        return batches, plan
    return chain([first], batches), plan if again else max(plan, time.time())


def by_rate(batches: Iterator[pa.RecordBatch], rate: float, begin: float) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Slices, each with the earliest time (seconds since 1970) to publish it. A task that lags does not catch up: it
    never exceeds rate."""
    step = max(int(rate * STEP_SECONDS), 1)
    due = begin
    for batch in batches:
        for at in range(0, batch.num_rows, step):
            piece = batch.slice(at, step)
            due = max(due, time.time())
            yield piece, due
            due += piece.num_rows / rate


def by_due(batches: Iterator[pa.RecordBatch], speed: float, begin: float) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Slices without the column due, with their times."""
    for batch in batches:
        due = batch.column(batch.schema.get_field_index("due")).to_pylist()
        rest = batch.drop_columns(["due"])
        at = 0
        for row in range(1, len(due) + 1):
            if row == len(due) or due[row] - due[at] > STEP_SECONDS * 1e6 * speed:
                yield rest.slice(at, row - at), begin + due[at] / 1e6 / speed
                at = row


def await_time(due: float, publisher: sink.Publisher) -> None:
    """Waits until a time, after everything is acknowledged."""
    wait = due - time.time()
    if wait <= 0:
        return
    publisher.finish()
    if wait > IDLE_SECONDS:
        publisher.close()
    time.sleep(max(due - time.time(), 0))


# ====================================================================== publishing
# Publishes a frame to a topic, at a limited rate if requested, and reports the totals.

NOTHING = "nothing was published"


def publish(spark: SparkSession, frame: DataFrame, options: dict[str, str], progress: Progress,
            rate: float | None = None, speed: float | None = None, total: int | None = None) -> Totals:
    """Publishes all rows. rate: messages per second over all tasks. speed: factor for the times in the column due.
    total: the number of rows, if known. Raises Spark's exceptions; some rows may be published then, and
    progress.summary has a lower bound."""

    spark.dataSource.register(PacedSink)
    pace: dict[str, str] = {}
    if rate is not None or speed is not None:
        frame, tasks = side_by_side(spark, frame)
        pace = {"rate": repr(rate / tasks)} if rate is not None else {"speed": repr(speed)}
    task_rows = TaskRows(str(spark.conf.get("spark.driver.host")))
    progress.count, progress.summary = (lambda: task_rows.rows), (lambda: so_far(task_rows.rows))
    progress.show(counted("published", lambda: task_rows.rows, Rate(), total))
    try:
        with tempfile.TemporaryDirectory(prefix="nsqc-totals-") as folder:
            path = Path(folder) / "totals.json"
            frame.write.format(PacedSink.name()).mode("append").options(
                **options, **pace, reporter=task_rows.address, totalsPath=str(path)).save()
            return Totals(**decode(path.read_text())) if path.exists() else Totals()
    finally:
        task_rows.close()


def so_far(rows: int) -> str:
    """The minimum result of an aborted job: acknowledgements may have been in flight."""
    return f"at least {rows:,} messages were published" if rows else NOTHING


def side_by_side(spark: SparkSession, frame: DataFrame) -> tuple[DataFrame, int]:
    """The frame in no more partitions than can run at once, in order, and their number."""
    slots = spark.sparkContext.defaultParallelism
    count = max(frame.rdd.getNumPartitions(), 1)
    return (frame.coalesce(slots), slots) if count > slots else (frame, count)


def report(progress: Progress, totals: Totals, topic: str, started: float) -> None:
    """Prints the totals; started: time.monotonic() at the start."""
    progress.count, progress.summary = (lambda: totals.rows), (lambda: f"{totals.rows:,} messages were published")
    seconds = max(time.monotonic() - started, 1e-6)
    remarks = ""
    if totals.skipped:
        remarks += f"; {totals.skipped:,} invalid rows skipped"
    if totals.resent:
        remarks += f"; {totals.resent:,} published again after a broken connection, possibly duplicates"
    progress.result(f"published {totals.rows:,} messages to {topic} in {seconds:.1f} s, "
                    f"{totals.rows / seconds:,.0f} a second{remarks}")
