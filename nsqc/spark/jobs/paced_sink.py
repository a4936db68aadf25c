"""The format nsq_paced: the sink of nsq with progress reports from tasks and an optional pace.

rate: maximum rows per second, per task; or speed: each row at the time in its column due, microseconds after the start,
divided by speed. reporter: where tasks report their rows (nsqc.spark.jobs.task_rows).

A task that waits has no outstanding answers: nsqd may close the connection, and rows with an unread acknowledgement
would be published again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from nsqc.spark import options, sink
from nsqc.spark.jobs.task_rows import RowReporter
from nsqc.spark.writers import BatchWriter, Published

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
