"""df.write and df.writeStream to topics: Arrow batches become MPUB and DPUB commands; fail-over over several nsqd.

At least once: what was not acknowledged when a connection breaks is published again, to the next nsqd.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from nsqc.spark import link
from nsqc.spark.bodies import Bodies
from nsqc.spark.options import OptionError, Sink
from nsqc.store.files import replace_file
from nsqc.wire.names import is_valid_name

log = logging.getLogger("nsqc.spark")

TYPES = {"value": {"binary", "string"}, "topic": {"string"}, "defer_ms": {"int", "bigint", "smallint", "tinyint"}}
DEFERRED_ROWS = 1000    # sent before their answers are read: each has one
# The nsqd is well, but cannot store now: another one may.
ELSEWHERE = ("E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED")


class BadRow(ValueError):
    """A row that nsqd would refuse; the text names it."""


class PublishFailed(RuntimeError):
    """All tries at all nsqd have failed; the text names the last cause."""


@dataclass
class Totals:
    """What one task, or all, have done. resent: rows that were published again, which may be duplicates."""

    rows: int = 0
    bytes: int = 0
    commands: int = 0
    deferred: int = 0
    resent: int = 0
    skipped: int = 0
    retries: int = 0

    def add(self, other: Totals) -> None:
        """Counts another's in."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {getattr(self, field.name)}" for field in fields(self))


class Command(NamedTuple):
    """What is sent in one go: rows of it are acknowledged together."""

    data: bytes
    answers: int
    rows: int
    deferred: int


def check_schema(schema: Any, options: Sink) -> None:
    """Raises OptionError where a column is missing, unknown or of a wrong type."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in kinds.items():
        if name not in TYPES:
            raise OptionError(f"nsq: column {name} is not published; the columns are value, topic and defer_ms: "
                              "select them, with to_json(struct(...)) for a whole row")
        if kind not in TYPES[name]:
            raise OptionError(f"nsq: column {name} must be {' or '.join(sorted(TYPES[name]))}, not {kind}")
    if "value" not in kinds:
        raise OptionError("nsq: there is no column value")
    if ("topic" in kinds) == (options.topic is not None):
        raise OptionError("nsq: give the topic either as an option or as a column")


class Publisher:
    """Publishes the batches of one task. first: where in the list of nsqd it begins."""

    def __init__(self, options: Sink, first: int):
        self.options = options
        self.totals = Totals()
        self.acknowledged: Callable[[Totals], Any] | None = None    # is told the totals when they have grown
        self.rows = 0       # seen so far: rows are named by their number in the task
        self._first = first
        self._turn = 0
        self._tries = 0     # in a row that failed
        self._link: link.Connection | None = None
        self._pending: deque[Command] = deque()     # submitted and not acknowledged

    def publish(self, batch: pa.RecordBatch) -> None:
        """Submits all rows; earlier ones may be acknowledged meanwhile. Nothing of the batch is sent where a row of it
        is bad. Raises BadRow, PublishFailed, Refused."""
        for command in list(self._commands(batch)):
            self._submit(command)

    def finish(self) -> None:
        """Waits until everything is acknowledged. Raises PublishFailed, Refused."""
        self._settle(0)

    def close(self) -> None:
        """Closes the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None

    # ------------------------------------------------------------------ rows to commands

    def _commands(self, batch: pa.RecordBatch) -> Iterator[Command]:
        """All of a batch, checked."""
        first, self.rows = self.rows, self.rows + batch.num_rows
        columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
        good = self._good_rows(columns, first)
        if good is not None:
            columns = {name: column.take(good) for name, column in columns.items()}
        for topic, values, delays in by_topic(columns, self.options.topic):
            yield from self._of_topic(topic.encode(), values, delays)

    def _good_rows(self, columns: dict[str, pa.Array], first: int) -> pa.Array | None:
        """The rows that nsqd will take; None: all. Raises BadRow where such are not to be skipped."""
        count = len(columns["value"])
        bad: dict[int, str] = {}
        values, at = bodies(columns["value"]), 0
        while (found := values.find_bad(at, self.options.maxMsgSize)) is not None:
            row, what, size = found
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
        log.warning("%d rows are skipped, the first is row %d of the partition: %s", len(bad), first + row, bad[row])
        return pa.array([row for row in range(count) if row not in bad], pa.int64())

    def _of_topic(self, topic: bytes, values: pa.Array, delays: pa.Array | None) -> Iterator[Command]:
        if delays is not None:
            late = pc.fill_null(pc.greater(delays, 0), False)
            yield from self._deferred(topic, values.filter(late), delays.filter(late))
            values = values.filter(pc.invert(late))
        column, at = bodies(values), 0
        while at < column.rows:
            data, end = column.mpub(topic, at, self.options.batchRows, self.options.batchBytes)
            yield Command(data, 1, end - at, 0)
            at = end

    def _deferred(self, topic: bytes, values: pa.Array, delays: pa.Array) -> Iterator[Command]:
        column, at = bodies(values), 0
        wait = memoryview(delays.cast(pa.int32()).buffers()[1] or b"").cast("B").cast("i") if column.rows else None
        while at < column.rows:
            rows = min(self.options.batchRows, DEFERRED_ROWS)
            data, end = column.dpub(topic, wait[:column.rows], at, rows, self.options.batchBytes)
            yield Command(data, end - at, end - at, end - at)
            at = end

    # ------------------------------------------------------------------ commands to nsqd

    def _submit(self, command: Command) -> None:
        self._settle(self.options.window - 1)
        self._pending.append(command)
        self._attempt(lambda one: one.submit(command.data, command.answers))

    def _settle(self, outstanding: int) -> None:
        """Waits for acknowledgements until so many commands lack theirs."""
        while len(self._pending) > outstanding:
            self._attempt(lambda one: self._acknowledged(one.drain(len(self._pending) - 1)))

    def _acknowledged(self, count: int) -> None:
        if not count:
            return
        for _ in range(count):
            command = self._pending.popleft()
            self.totals.rows += command.rows
            self.totals.bytes += len(command.data)
            self.totals.commands += 1
            self.totals.deferred += command.deferred
            self._tries = 0
        if self.acknowledged is not None:
            self.acknowledged(self.totals)

    def _attempt(self, action: Any) -> None:
        """Does it on the connection; where that is not there or breaks, everything pending goes to the next nsqd."""
        if self._link is not None:
            try:
                action(self._link)
                return
            except (link.ConnectError, link.Refused) as error:
                self._failed(error)
        while self._link is None:
            try:
                self._link = self._connect()
                for command in self._pending:
                    self._link.submit(command.data, command.answers)
            except (link.ConnectError, link.LookupFailed, link.Refused) as error:
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Goes on to the next nsqd after a pause. Raises PublishFailed when there were too many in a row, Refused
        where no nsqd would take it."""
        if isinstance(error, link.Refused) and error.code not in ELSEWHERE:
            raise error
        if self._link is not None:
            self.totals.resent += sum(command.rows for command in self._pending)
        self.close()
        self._turn += 1
        self._tries += 1
        if self._tries > self.options.retries:
            raise PublishFailed(f"{self._tries} tries failed, the last one: {error}")
        self.totals.retries += 1
        log.warning("publishing: %s; trying again", error)
        time.sleep(min(self.options.backoff * 2 ** (self._tries - 1), 10.0))

    def _connect(self) -> link.Connection:
        nodes = self.options.nsqd or link.nodes(self.options.nsqlookupd, self.options.timeout)
        if not nodes:
            raise link.LookupFailed("nsqlookupd knows no nsqd")
        return link.connect(nodes[(self._first + self._turn) % len(nodes)], self.options)


def bodies(column: pa.Array) -> Bodies:
    """The column's buffers; the view types of Arrow are made plain first."""
    kind = column.type
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.large_binary() if pa.types.is_binary_view(kind) else pa.large_string())
        kind = column.type
    wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not (wide or pa.types.is_binary(kind) or pa.types.is_string(kind)):
        raise BadRow(f"value has Arrow's type {kind}, which is no bytes and no text")
    validity, offsets, data = column.buffers()
    return Bodies(validity, offsets, data, column.offset, len(column), wide)


def by_topic(columns: dict[str, pa.Array], topic: str | None) -> Iterator[tuple[str, pa.Array, pa.Array | None]]:
    """(topic, values, delays) for each topic of a batch; rows of one keep their order."""
    values, delays = columns["value"], columns.get("defer_ms")
    if topic is not None:
        yield topic, values, delays
        return
    words = columns["topic"].dictionary_encode()
    if len(words.dictionary) == 1:
        yield words.dictionary[0].as_py(), values, delays
        return
    for index, word in enumerate(words.dictionary.to_pylist()):
        mine = pc.equal(words.indices, index)
        yield word, values.filter(mine), delays.filter(mine) if delays is not None else None


def bad_topics(column: pa.Array | None) -> dict[int, str]:
    """Rows whose topic is null or no name, with the reason."""
    if column is None:
        return {}
    words = column.dictionary_encode()
    wrong = [index for index, word in enumerate(words.dictionary.to_pylist()) if not is_valid_name(word.encode())]
    if not wrong and not column.null_count:
        return {}
    rows = pc.or_kleene(pc.is_null(column), pc.is_in(words.indices, pa.array(wrong, words.indices.type)))
    return {row: f"topic is {column[row].as_py()!r}, a name is 1 to 64 of . a-z A-Z 0-9 _ -"
            for row in pc.indices_nonzero(rows).to_pylist()}


def bad_delays(column: pa.Array | None, highest: int) -> dict[int, str]:
    """Rows whose delay nsqd would refuse, with the reason."""
    if column is None or not len(column):
        return {}
    rows = pc.fill_null(pc.or_(pc.less(column, 0), pc.greater(column.cast(pa.int64()), highest)), False)
    return {row: f"defer_ms is {column[row].as_py()}, allowed is 0 to maxDeferMs={highest}"
            for row in pc.indices_nonzero(rows).to_pylist()}


def report(options: Sink, totals: Totals, what: str) -> None:
    """Totals of a job or a batch into the log, and into the file that was asked for."""
    log.info("%s: %s", what, totals)
    if options.totalsPath:
        known = Totals()
        path = Path(options.totalsPath)
        if path.exists():
            known = Totals(**json.loads(path.read_text()))
        known.add(totals)
        os.makedirs(path.parent, exist_ok=True)
        replace_file(path, json.dumps({field.name: getattr(known, field.name) for field in fields(known)}).encode(),
                     durable=False)
