"""Spark's side of the sink: what runs on the executors for a partition, and on the driver at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from nsqc.spark import sink
from nsqc.spark.options import Sink


@dataclass
class Published(WriterCommitMessage):
    """What a task reports."""

    totals: sink.Totals


def write(options: Sink, batches: Iterator[pa.RecordBatch]) -> Published:
    """Publishes a partition; returns when all of it is acknowledged."""
    context = TaskContext.get()
    publisher = sink.Publisher(options, context.partitionId() if context else 0)
    try:
        for batch in batches:
            publisher.publish(batch)
        publisher.finish()
    finally:
        publisher.close()
    return Published(publisher.totals)


def total(messages: Iterable[Any]) -> sink.Totals:
    """Of all tasks that reported."""
    totals = sink.Totals()
    for message in messages:
        if message is not None:
            totals.add(message.totals)
    return totals


class BatchWriter(DataSourceArrowWriter):
    """df.write.format("nsq")."""

    def __init__(self, options: Sink):
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """On an executor."""
        return write(self.options, iterator)

    def commit(self, messages: list[Any]) -> None:
        """On the driver, when all partitions are published."""
        sink.report(self.options, total(messages), "published")

    def abort(self, messages: list[Any]) -> None:
        """On the driver, when a partition has failed: what is published stays published."""
        sink.log.error("the job failed; these rows stay published: %s", total(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """df.writeStream.format("nsq")."""

    def __init__(self, options: Sink):
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """On an executor."""
        return write(self.options, iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """On the driver, when all partitions of a batch are published."""
        sink.report(self.options, total(messages), f"batch {batchId} published")

    def abort(self, messages: list[Any], batchId: int) -> None:
        """On the driver, when a partition has failed: its batch will be published again."""
        sink.log.error("batch %d failed; these rows stay published and will be again: %s", batchId, total(messages))
