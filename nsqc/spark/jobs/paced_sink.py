"""The format nsq_paced: the sink of nsq whose tasks tell the driver how far they are, with a pace or none.

rate: rows a second at most for each task; or speed: each row when its column due says, which is microseconds after the
beginning, divided by speed.

No connection is left with open answers while a task waits: nsqd may close it, and what was not seen to be
acknowledged would be published again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter
from pyspark.sql.types import StructType

from nsqc.spark import options, sink
from nsqc.spark.jobs.task_rows import RowReporter
from nsqc.spark.writers import BatchWriter, Published

STEP_SECONDS = 0.05     # rows due within that go together
IDLE_SECONDS = 5.0      # a longer wait has no connection: nobody answers heartbeats meanwhile
LEAD_SECONDS = 0.5      # until the tasks run, if all is well


class PacedSink(DataSource):
    """The entry."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "nsq_paced"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Raises OptionError."""
        given = dict(self.options)
        rate, speed, task_rows = given.pop("rate", None), given.pop("speed", None), given.pop("task_rows", "")
        chosen = options.sink(given)
        sink.check_schema(StructType([field for field in schema.fields if field.name != "due"]), chosen)
        return PacedWriter(chosen, float(rate) if rate else None, float(speed) if speed else None, task_rows)


class PacedWriter(BatchWriter):
    """Begins, on all executors, shortly after it was made."""

    def __init__(self, chosen: options.Sink, rate: float | None, speed: float | None, task_rows: str = ""):
        super().__init__(chosen)
        self.rate = rate
        self.speed = speed
        self.task_rows = task_rows      # nsqc.spark.jobs.task_rows.TaskRows.address
        self.begin = time.time() + LEAD_SECONDS

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """On an executor."""
        context = TaskContext.get()
        publisher = sink.Publisher(self.options, context.partitionId())
        with ExitStack() as stack:
            stack.callback(publisher.close)
            if self.task_rows:
                reporter = RowReporter(self.task_rows, context.taskAttemptId())
                stack.callback(reporter.close)
                publisher.acknowledged = reporter.report
            for piece, due in self._pieces(iterator):
                await_time(due, publisher)
                publisher.publish(piece)
            publisher.finish()
        return Published(publisher.totals)

    def abort(self, messages: list[Any]) -> None:
        """The job says itself how much stays published, tasks that were stopped included."""

    def _pieces(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, float]]:
        if self.rate:
            return by_rate(batches, self.rate, self.begin)
        if not self.speed:
            return ((batch, 0.0) for batch in batches)
        batches, begin = begun(batches, self.begin, TaskContext.get().attemptNumber() > 0)
        return by_due(batches, self.speed, begin)


def begun(batches: Iterator[pa.RecordBatch], plan: float, again: bool) -> tuple[Iterator[pa.RecordBatch], float]:
    """The same batches and when they begin: as planned, or once there are rows where that is later, or all that should
    have gone before would go at once. A task that is done again keeps to the plan, to make up for the time it lost."""
    first = next(batches, None)
    if first is None:
        return batches, plan
    return chain([first], batches), plan if again else max(plan, time.time())


def by_rate(batches: Iterator[pa.RecordBatch], rate: float, begin: float) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Slices with the time (seconds since 1970) before which each must not go. A task that has fallen behind does not
    catch up: at no time does it go faster than rate."""
    step = max(int(rate * STEP_SECONDS), 1)
    due = begin
    for batch in batches:
        for at in range(0, batch.num_rows, step):
            piece = batch.slice(at, step)
            due = max(due, time.time())
            yield piece, due
            due += piece.num_rows / rate


def by_due(batches: Iterator[pa.RecordBatch], speed: float, begin: float) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Slices, their column due taken off, with their times."""
    for batch in batches:
        due = batch.column(batch.schema.get_field_index("due")).to_pylist()
        rest = batch.drop_columns(["due"])
        at = 0
        for row in range(1, len(due) + 1):
            if row == len(due) or due[row] - due[at] > STEP_SECONDS * 1e6 * speed:
                yield rest.slice(at, row - at), begin + due[at] / 1e6 / speed
                at = row


def await_time(due: float, publisher: Any) -> None:
    """Waits; everything is acknowledged before."""
    wait = due - time.time()
    if wait <= 0:
        return
    publisher.finish()
    if wait > IDLE_SECONDS:
        publisher.close()
    time.sleep(max(due - time.time(), 0))
