"""The disk queues of a data path as Arrow batches: files, offsets, and their order. Knows no Spark."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from nsqc.spark import columns, options
from nsqc.spark.arrow import Records
from nsqc.spark.columns import RecordColumns
from nsqc.spark.options import DiskQueue
from nsqc.spark.travel import Travels
from nsqc.store.disk import recovery
from nsqc.store.disk.fileio import META, file_name, split_name, split_queue
from nsqc.store.disk.recovery import listing
from nsqc.wire.parser import is_valid_name

# ====================================================================== queue files

log = logging.getLogger("nsqc.spark")

BATCH_BYTES = 16 << 20


class BadRecord(ValueError):
    """A data file has bytes that belong to no record; the text has the position."""


class Queue(NamedTuple):
    """The disk queue of a topic, or of one of its channels."""

    topic: str
    channel: str | None

    @property
    def name(self) -> str:
        """The beginning of the names of its files."""
        return self.topic if self.channel is None else f"{self.topic}:{self.channel}"


class Span(NamedTuple):
    """The bytes of a data file to read: from start to limit."""

    queue: Queue
    path: str
    start: int
    limit: int


def queues(folder: str, options: DiskQueue) -> list[Queue]:
    """The queues with files that the options select, by name. Raises OSError."""
    existing = set()
    for entry in os.listdir(folder):
        parts = split_name(entry)
        if parts is not None:
            queue = Queue(*split_queue(parts[0]))
            if all(is_valid_name(part.encode()) for part in queue if part is not None):
                existing.add(queue)
    return sorted((queue for queue in existing if wanted(queue, options)), key=lambda queue: queue.name)


def wanted(queue: Queue, options: DiskQueue) -> bool:
    """Whether the options select a queue."""
    if options.topic and queue.topic != options.topic:
        return False
    if options.channel:
        return queue.channel == options.channel
    return options.queues == "all" or (queue.channel is None) == (options.queues == "topics")


def spans(options: DiskQueue) -> list[Span]:
    """Everything to read. Raises OSError if the folder is not readable."""
    listed = listing(options.path)
    return [span for queue in queues(options.path, options)
            for span in spans_of(queue, listed.get(queue.name, {}), options)]


def spans_of(queue: Queue, files: dict[int, int], options: DiskQueue) -> list[Span]:
    """The files of one queue in order. Unread is everything after the read position, as a daemon would deliver it:
    including data written after the positions, and everything if there are no positions."""
    first, first_offset = 0, 0
    if options.range == "unread":
        meta = recovery.read(os.path.join(options.path, file_name(queue.name, META)))
        if meta is None:
            log.warning("%s: no usable positions, reading all %d files", queue.name, len(files))
        else:
            first, first_offset = meta[1:3]
    unread = []
    for number, length in files.items():
        start = first_offset if number == first else 0
        if number >= first and start < length:
            unread.append(Span(queue, os.path.join(options.path, file_name(queue.name, number)), start, length))
    return unread


def in_use(folder: str) -> bool:
    """Whether a daemon has this data path open. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read(span: Span, options: DiskQueue, wanted_columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The records of a span. Raises BadRecord after the first batch with damage, unless damage is skipped; OSError."""
    records = Records(span.path, span.start, span.limit, options.maxMsgSize)
    schema = columns.schema(wanted_columns)
    while (record_columns := records.batch(options.batchRows, BATCH_BYTES)) is not None:
        refuse_damage(records, options)
        yield batch(span, record_columns, schema)
    refuse_damage(records, options)
    if records.damaged:
        log.warning("%s: skipped %d bytes at offset %d that belong to no record", span.path, records.damaged,
                    records.damage_at)


def refuse_damage(records: Records, options: DiskQueue) -> None:
    """Raises BadRecord for damage, unless it is skipped."""
    if records.damaged and options.onBadRecord == "fail":
        raise BadRecord(f"{records.path}: no record at offset {records.damage_at}: a torn write or damage; "
                        "onBadRecord=skip reads the intact records before and after it "
                        f"(maxMsgSize={options.maxMsgSize} bounds what counts as one)")


def batch(span: Span, record_columns: RecordColumns, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns of the schema."""
    count, bodies, offsets, times, attempts, ids, positions = record_columns
    make = {
        "value": lambda: columns.bodies(offsets, bodies, count),
        "topic": lambda: columns.same(span.queue.topic, count),
        "id": lambda: columns.ids(ids, count),
        "timestamp": lambda: columns.fixed(columns.TIMESTAMP, times, count),
        "attempts": lambda: columns.fixed(pa.int32(), attempts, count),
        "channel": lambda: columns.same(span.queue.channel, count),
        "file": lambda: columns.same(os.path.basename(span.path), count),
        "pos": lambda: columns.fixed(pa.int64(), positions, count),
    }
    return pa.RecordBatch.from_arrays([make[column]() for column in schema.names], schema=schema)


# ====================================================================== diskqueue
# spark.read.format("nsq_diskqueue"): the messages in the disk queues of a data path, a partition per file.

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
        if in_use(self.options.path):
            log.warning("%s is in use by a daemon: messages that it reads and writes now may be missing or "
                                    "duplicates", self.options.path)
        return [InputPartition(span) for span in spans(self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one file."""
        span: Span | None = partition.value
        if span is None:    # Spark's own partition, if there are no files
            return iter(())
        return read(span, self.options, self.wanted)
