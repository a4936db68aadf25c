"""df.write and df.writeStream to topics: Arrow batches become MPUB and DPUB commands; failover over several nsqd.

Delivery is at least once: what was not acknowledged when a connection breaks is published again, to the next nsqd.
Commands have ids, so a topic of nsqc with the rule dedupe stores what a task or an epoch publishes again only once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from nsqc.client import ClientError, ConnectError, Connection, LookupFailed, Refused, nodes
from nsqc.client.commands import DEFERRED_AT_ONCE
from nsqc.client.peers import Backoff, Failover, Tries
from nsqc.spark import mistakes
from nsqc.spark.arrow import Bodies
from nsqc.spark.connect import connect
from nsqc.spark.options import OptionError, Sink
from nsqc.spark.travel import Travels
from nsqc.store.files import replace_file
from nsqc.wire.outside import decode
from nsqc.wire.parser import is_valid_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


# ====================================================================== sink

log = logging.getLogger("nsqc.spark")

TYPES = {"value": {"binary", "string"}, "topic": {"string"}, "defer_ms": {"int", "bigint", "smallint", "tinyint"}}
LONGEST_PAUSE = 10.0    # seconds between tries
NO_LIMIT = 1 << 40      # bytes of DPUBs whose rows are chosen


class BadRow(ValueError):
    """A row that nsqd would refuse; the text names it."""


@dataclass
class Totals:
    """The results of one task, or of all. resent: rows that were published again and may be duplicates."""

    rows: int = 0
    bytes: int = 0
    commands: int = 0
    deferred: int = 0
    resent: int = 0
    skipped: int = 0
    retries: int = 0

    def add(self, other: Totals) -> None:
        """Adds the totals of another task."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {getattr(self, field.name)}" for field in fields(self))


class Command(NamedTuple):
    """Bytes sent together; their rows are acknowledged together."""

    data: bytes
    answers: int
    rows: int
    deferred: int


def check_schema(schema: StructType, options: Sink) -> None:
    """Raises OptionError if a column is missing, unknown or of a wrong type."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in kinds.items():
        if name not in TYPES:
            raise OptionError(f"nsq: column {name} is not published; the columns are value, topic and defer_ms: "
                              "select them, with to_json(struct(...)) for a whole row")
        if kind not in TYPES[name]:
            raise OptionError(f"nsq: column {name} must be {' or '.join(sorted(TYPES[name]))}, not {kind}")
    if "value" not in kinds:
        raise OptionError("nsq: the column value is missing")
    if ("topic" in kinds) == (options.topic is not None):
        raise OptionError("nsq: give the topic either as an option or as a column")


class Publisher:
    """Publishes the batches of one task. first: index of the nsqd to start with. task: names the task, and an attempt
    to repeat it by the same name; empty: its commands have no ids."""

    def __init__(self, options: Sink, first: int, task: str = ""):
        self.options = options
        self._task = task
        self._made = 0      # commands
        self.totals = Totals()
        self.on_acknowledged: Callable[[Totals], None] | None = None    # called when the totals have grown
        self.rows = 0       # so far: errors identify rows by their number in the task
        self._failover = Failover(options.nsqd, options.nsqlookupd, options.retries,
                                  Backoff(options.backoff, LONGEST_PAUSE), first=first, each_try=True)
        self._tries = Tries(self._failover)
        self._connection: Connection | None = None
        self._pending: deque[Command] = deque()     # submitted and not acknowledged

    def publish(self, batch: pa.RecordBatch) -> None:
        """Submits all rows; earlier ones may be acknowledged meanwhile. If a row is bad, no row of the batch is sent.
        Raises BadRow, PublishFailed, Refused."""
        for command in list(self._commands(batch, self._wants_ids())):
            self._submit(command)

    def _wants_ids(self) -> bool:
        """Whether the nsqd of now knows ids of publishes; it is connected to if need be. Another one ignores them."""
        if not self._task:
            return False
        if self._connection is None:
            self._attempt(lambda connection: None)
        return self._connection is not None and self._connection.offered.publish_ids

    def finish(self) -> None:
        """Waits until everything is acknowledged. Raises PublishFailed, Refused."""
        self._settle(0)

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------------ rows to commands

    def _commands(self, batch: pa.RecordBatch, ids: bool) -> Iterator[Command]:
        """The commands for a whole batch, checked; ids: with ids."""
        first, self.rows = self.rows, self.rows + batch.num_rows
        columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
        good = self._good_rows(columns, first)
        if good is not None:
            columns = {name: column.take(good) for name, column in columns.items()}
        for topic, values, delays in by_topic(columns, self.options.topic):
            yield from self._of_topic(topic.encode(), values, delays, ids)

    def _good_rows(self, columns: Mapping[str, pa.Array], first: int) -> pa.Array | None:
        """The rows accepted by nsqd; None: all. Raises BadRow unless bad rows are to be skipped."""
        count = len(columns["value"])
        bad: dict[int, str] = {}
        values, at = bodies(columns["value"]), 0
        while (fault := values.find_bad(at, self.options.maxMsgSize)) is not None:
            row, what, size = fault
            bad[row] = f"value is {what}" + (f": {size} bytes, maxMsgSize is {self.options.maxMsgSize}" if size else "")
            at = row + 1
            if self.options.onBadRecord == "fail":
                break
        bad |= bad_topics(columns.get("topic")) | bad_delays(columns.get("defer_ms"), self.options.maxDeferMs)
        if not bad:
            return None
        row = min(bad)
        if self.options.onBadRecord == "fail":
            raise BadRow(f"row {first + row} of the partition: {bad[row]}; nothing of its batch was sent")
        self.totals.skipped += len(bad)
        log.warning("skipping %d rows, the first is row %d of the partition: %s", len(bad), first + row, bad[row])
        return pa.array([row for row in range(count) if row not in bad], pa.int64())

    def _of_topic(self, topic: bytes, values: pa.Array, delays: pa.Array | None, ids: bool) -> Iterator[Command]:
        if delays is not None:
            import pyarrow.compute as pc  # slow to import, and most sinks do not need it

            is_deferred = pc.fill_null(pc.greater(delays, 0), False)
            yield from self._deferred(topic, values.filter(is_deferred), delays.filter(is_deferred), ids)
            values = values.filter(pc.invert(is_deferred))
        column, at = bodies(values), 0
        while at < column.rows:
            data, end = column.mpub(topic, at, self.options.batchRows, self.options.batchBytes)
            if ids:
                line = data.index(b"\n")
                data = b"".join((data[:line], b" ", self._id(data), memoryview(data)[line:]))
            yield Command(data, 1, end - at, 0)
            at = end

    def _deferred(self, topic: bytes, values: pa.Array, delays: pa.Array, ids: bool) -> Iterator[Command]:
        column, at = bodies(values), 0
        if not column.rows:
            return
        milliseconds = memoryview(delays.cast(pa.int32()).buffers()[1] or b"").cast("B").cast("i")[:column.rows]
        rows = min(self.options.batchRows, DEFERRED_AT_ONCE)
        while at < column.rows:
            data, end = column.dpub(topic, milliseconds, at, rows, self.options.batchBytes)
            if ids:
                data, end = column.dpub(topic, milliseconds, at, end - at, NO_LIMIT, self._id(data))
            yield Command(data, end - at, end - at, end - at)
            at = end

    def _id(self, command: bytes) -> bytes:
        """For the next command. It is that of a command of an earlier attempt only if the rows are the same, too: an
        attempt may get them in another order, and none may be taken for another."""
        self._made += 1
        place = f"{self._task}/{self._made}".encode()
        return base64.urlsafe_b64encode(hashlib.blake2b(command, digest_size=15, key=place[-64:]).digest())

    # ------------------------------------------------------------------ commands to nsqd

    def _submit(self, command: Command) -> None:
        self._settle(self.options.window - 1)
        self._pending.append(command)
        self._attempt(lambda connection: connection.submit(command.data, command.answers))

    def _settle(self, outstanding: int) -> None:
        """Waits until at most this many commands are unacknowledged."""
        while len(self._pending) > outstanding:
            self._attempt(lambda connection: self._acknowledged(connection.drain(len(self._pending) - 1)))

    def _acknowledged(self, count: int) -> None:
        if not count:
            return
        for _ in range(count):
            command = self._pending.popleft()
            self.totals.rows += command.rows
            self.totals.bytes += len(command.data)
            self.totals.commands += 1
            self.totals.deferred += command.deferred
        self._tries.succeeded()
        if self.on_acknowledged is not None:
            self.on_acknowledged(self.totals)

    def _attempt(self, action: Callable[[Connection], None]) -> None:
        """Runs action on the connection. If it is missing or breaks, submits everything pending to the next
        nsqd."""
        if self._connection is not None:
            try:
                action(self._connection)
                return
            except (ConnectError, Refused) as error:
                self._failed(error, self._connection.address)
        while self._connection is None:
            address = None
            try:
                self._look_up()
                address = self._failover.target()
                self._connection = connect(address, self.options, publishes=True)
                for command in self._pending:
                    self._connection.submit(command.data, command.answers)
            except (ConnectError, LookupFailed, Refused) as error:
                self._failed(error, address)

    def _look_up(self) -> None:
        """Unlike a Producer's, a failed lookup counts as a try, even if nsqd are known from an earlier one."""
        if self._failover.nsqlookupd:
            self._failover.addresses = nodes(self._failover.nsqlookupd, self.options.timeout)

    def _failed(self, error: ClientError, address: str | None) -> None:
        """Switches to the next nsqd after a pause. Raises PublishFailed after too many consecutive failures, Refused if
        no nsqd would accept the command, OptionError if options do not permit it."""
        if self._connection is not None:
            self.totals.resent += sum(command.rows for command in self._pending)
        self.close()
        if (mistake := mistakes.of_nsqd(error, address or "", self.options)) is not None:
            raise mistake from None
        pause = self._tries.failed(error, address)
        self.totals.retries += 1
        log.warning("publishing: %s; retrying", error)
        time.sleep(pause)


def bodies(column: pa.Array) -> Bodies:
    """The buffers of a column; Arrow's view types are converted first."""
    kind = column.type
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.large_binary() if pa.types.is_binary_view(kind) else pa.large_string())
        kind = column.type
    wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not (wide or pa.types.is_binary(kind) or pa.types.is_string(kind)):
        raise BadRow(f"value has the Arrow type {kind}, which is neither bytes nor text")
    validity, offsets, data = column.buffers()
    return Bodies(validity, offsets, data, column.offset, len(column), wide)


def by_topic(columns: Mapping[str, pa.Array], topic: str | None) -> Iterator[tuple[str, pa.Array, pa.Array | None]]:
    """(topic, values, delays) for each topic of a batch; the rows of a topic keep their order."""
    values, delays = columns["value"], columns.get("defer_ms")
    if topic is not None:
        yield topic, values, delays
        return
    names = columns["topic"].dictionary_encode()
    if len(names.dictionary) == 1:
        yield names.dictionary[0].as_py(), values, delays
        return
    import pyarrow.compute as pc  # slow to import, and most sinks do not need it

    for index, name in enumerate(names.dictionary.to_pylist()):
        is_in_topic = pc.equal(names.indices, index)
        yield name, values.filter(is_in_topic), delays.filter(is_in_topic) if delays is not None else None


def bad_topics(column: pa.Array | None) -> dict[int, str]:
    """Rows whose topic is null or not a valid name, with the reason."""
    if column is None:
        return {}
    names = column.dictionary_encode()
    invalid = [index for index, name in enumerate(names.dictionary.to_pylist()) if not is_valid_name(name.encode())]
    if not invalid and not column.null_count:
        return {}
    import pyarrow.compute as pc  # slow to import, and most sinks do not need it

    rows = pc.or_kleene(pc.is_null(column), pc.is_in(names.indices, pa.array(invalid, names.indices.type)))
    return {row: f"topic is {column[row].as_py()!r}, a name is 1 to 64 of . a-z A-Z 0-9 _ -"
            for row in pc.indices_nonzero(rows).to_pylist()}


def bad_delays(column: pa.Array | None, highest: int) -> dict[int, str]:
    """Rows whose delay nsqd would refuse, with the reason."""
    if column is None or not len(column):
        return {}
    import pyarrow.compute as pc  # slow to import, and most sinks do not need it

    rows = pc.fill_null(pc.or_(pc.less(column, 0), pc.greater(column.cast(pa.int64()), highest)), False)
    return {row: f"defer_ms is {column[row].as_py()}, allowed is 0 to maxDeferMs={highest}"
            for row in pc.indices_nonzero(rows).to_pylist()}


def report(options: Sink, totals: Totals, what: str) -> None:
    """Logs the totals of a job or a batch, and adds them to totalsPath."""
    log.info("%s: %s", what, totals)
    if options.totalsPath:
        sum_of_all = Totals()
        path = Path(options.totalsPath)
        if path.exists():
            sum_of_all = Totals(**decode(path.read_text()))
        sum_of_all.add(totals)
        os.makedirs(path.parent, exist_ok=True)
        replace_file(path, json.dumps({field.name: getattr(sum_of_all, field.name)
                                       for field in fields(sum_of_all)}).encode(), durable=False)


# ====================================================================== writers
# Spark's side of the sink: code for a partition on the executors, and for the end of a job on the driver.

@dataclass
class Published(WriterCommitMessage):
    """The report of a task."""

    totals: Totals


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
    publisher = Publisher(options, partition, f"{token}/{partition}")
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


def total(messages: Iterable[WriterCommitMessage | None]) -> Totals:
    """The totals of all tasks that reported."""
    totals = Totals()
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
        report(self.options, total(messages), "published")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs on the driver when a partition has failed: published rows stay published."""
        log.error("the job failed; these rows stay published: %s", total(messages))


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
        report(self.options, total(messages), f"batch {batchId} published")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Runs on the driver when a partition has failed: Spark will publish the batch again."""
        log.error("batch %d failed; these rows stay published and will be published again: %s", batchId,
                       total(messages))
