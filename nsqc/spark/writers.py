"""Spark's side of the sink: code for a partition on the executors, and for the end of a job on the driver."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from nsqc.spark import sink
from nsqc.spark.options import OptionError, Sink
from nsqc.spark.travel import Travels


@dataclass
class Published(WriterCommitMessage):
    """The report of a task."""

    totals: sink.Totals


# What Spark says of the micro-batch that a task works on.
QUERY, EPOCH = "sql.streaming.queryId", "streaming.sql.batchId"
# The execution of the task's job, and the one that has started it.
EXECUTION, ROOT = "spark.sql.execution.id", "spark.sql.execution.root.id"
TABLE = ("nsq: a topic cannot be a table of the catalog, which could not be read: Spark does not pass its options to a "
         "Python source. Use save() instead of saveAsTable(); nothing was published")


def refuse_table() -> None:
    """Raises OptionError in a task of saveAsTable(). Spark gives a writer the same options as for save(), but writes
    within an execution that creates the table. foreachBatch() also has an outer one, that of its micro-batch."""
    context = TaskContext.get()
    if context is None or context.getLocalProperty(EPOCH):
        return
    root = context.getLocalProperty(ROOT)
    if root and root != context.getLocalProperty(EXECUTION):
        raise OptionError(TABLE)


def write(options: Sink, batches: Iterator[pa.RecordBatch], token: str) -> Published:
    """Publishes a partition; returns when everything is acknowledged. token: names the job, over attempts to repeat its
    tasks."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    publisher = sink.Publisher(options, partition, f"{token}/{partition}")
    try:
        for batch in batches:
            publisher.publish(batch)
        publisher.finish()
    finally:
        publisher.close()
    return Published(publisher.totals)


def epoch_token() -> str:
    """Names the micro-batch of this task, over restarts of its query; empty: Spark does not say."""
    context = TaskContext.get()
    query, epoch = (context.getLocalProperty(key) for key in (QUERY, EPOCH)) if context else (None, None)
    return f"{query}/{epoch}" if query and epoch else ""


def total(messages: Iterable[WriterCommitMessage | None]) -> sink.Totals:
    """The totals of all tasks that reported."""
    totals = sink.Totals()
    for message in messages:
        if isinstance(message, Published):
            totals.add(message.totals)
    return totals


class BatchWriter(Travels, DataSourceArrowWriter):
    """df.write.format("nsq")."""

    def __init__(self, options: Sink):
        self.options = options
        self.token = secrets.token_urlsafe(9)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Runs on an executor. Raises OptionError for saveAsTable()."""
        refuse_table()
        return write(self.options, iterator, self.token)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs on the driver when all partitions are published."""
        sink.report(self.options, total(messages), "published")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs on the driver when a partition has failed: published rows stay published."""
        sink.log.error("the job failed; these rows stay published: %s", total(messages))


class StreamWriter(Travels, DataSourceStreamArrowWriter):
    """df.writeStream.format("nsq")."""

    def __init__(self, options: Sink):
        self.options = options
        self.token = secrets.token_urlsafe(9)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Runs on an executor."""
        return write(self.options, iterator, epoch_token() or self.token)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Runs on the driver when all partitions of a batch are published."""
        sink.report(self.options, total(messages), f"batch {batchId} published")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Runs on the driver when a partition has failed: Spark will publish the batch again."""
        sink.log.error("batch %d failed; these rows stay published and will be published again: %s", batchId,
                       total(messages))
