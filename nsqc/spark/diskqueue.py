"""spark.read.format("nsq_diskqueue"): the messages in the disk queues of a data path, a partition per file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from nsqc.spark import columns, options, queue_files
from nsqc.spark.travel import Travels


class DiskQueueSource(Travels, DataSource):
    """The format and its columns."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "nsq_diskqueue"

    def schema(self) -> str:
        """All columns; a schema with fewer is faster. Spark calls this at load(), which checks the options. Raises
        OptionError."""
        options.diskqueue_at_load(self.options)
        return columns.RECORD

    def reader(self, schema: StructType) -> DiskQueueReader:
        """Raises OptionError, ValueError for an unknown column."""
        chosen = options.diskqueue_at_load(self.options)
        return DiskQueueReader(chosen, columns.chosen(schema, columns.RECORD, self.name()))

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Raises NotImplementedError."""
        raise NotImplementedError("nsq_diskqueue: only nsqd writes disk queues; publish with format nsq")


class DiskQueueReader(Travels, DataSourceReader):
    """Plans on the driver, reads on the executors."""

    def __init__(self, chosen: options.DiskQueue, wanted: list[str]):
        self.options = chosen
        self.wanted = wanted

    def partitions(self) -> list[InputPartition]:
        """One partition per data file with unread records."""
        if queue_files.in_use(self.options.path):
            queue_files.log.warning("%s is in use by a daemon: messages that it reads and writes now may be missing or "
                                    "duplicates", self.options.path)
        return [InputPartition(span) for span in queue_files.spans(self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one file."""
        span: queue_files.Span | None = partition.value
        if span is None:    # Spark's own partition, if there are no files
            return iter(())
        return queue_files.read(span, self.options, self.wanted)
