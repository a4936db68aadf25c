"""spark.read.format("nsq_diskqueue"): the messages in a data path's disk queues, a partition for each file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from nsqc.spark import archive, columns, options


class DiskQueueSource(DataSource):
    """The entry: names the format and its columns."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "nsq_diskqueue"

    def schema(self) -> str:
        """All columns; a schema of fewer is read faster."""
        return columns.RECORD

    def reader(self, schema: Any) -> DiskQueueReader:
        """Raises OptionError, ValueError for a column that is not there, OSError for the path."""
        return DiskQueueReader(options.diskqueue(self.options), columns.chosen(schema, columns.RECORD, self.name()))

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """Refused."""
        raise NotImplementedError("nsq_diskqueue: disk queues are written by nsqd only; publish with format nsq")


class DiskQueueReader(DataSourceReader):
    """Plans on the driver, reads on the executors."""

    def __init__(self, chosen: options.DiskQueue, wanted: list[str]):
        self.options = chosen
        self.wanted = wanted
        if not os.path.isdir(chosen.path):
            raise options.OptionError(f"nsq_diskqueue: path={chosen.path} is no folder")

    def partitions(self) -> list[InputPartition]:
        """One for each data file that has something to read."""
        if archive.in_use(self.options.path):
            archive.log.warning("%s is in use by a daemon: what it reads and writes now is missed or seen twice",
                                self.options.path)
        return [InputPartition(tuple(span)) for span in archive.spans(self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one file."""
        if partition.value is None:     # Spark's own, where there are no files
            return iter(())
        return archive.read(archive.Span(*partition.value), self.options, self.wanted)
