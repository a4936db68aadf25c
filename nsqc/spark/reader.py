"""spark.readStream.format("nsq"): offsets are rows of the staging log; runs in a process beside the driver.

An offset is {"log": uuid, "rows": n}. Rows before a start passed by Spark are finished: it requests the next rows only
once the previous batch is in its commit log.
"""

from __future__ import annotations

import atexit
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NoReturn, TypeAlias, TypedDict

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from nsqc.spark import stagelog
from nsqc.spark.options import Stream, shown
from nsqc.spark.stagelog import Place, StageError, StageLog, log, read_place
from nsqc.spark.stager import IDLE, Stager, StreamMetrics
from nsqc.spark.travel import Travels

KEEP_ROWS = 100_000     # minimum kept in the log: used to recognise redeliveries after a restart
POLL_SECONDS = 0.05
STEP_ROWS = 10_000      # frames are merged up to this many rows for Spark
STEP_BYTES = 8 << 20
INLINE_BYTES = 32 << 20  # limit of a batch whose rows pass through the driver's Java, which copies them several times

# First row, end, and the frames: as places, or as bytes for executors that cannot see the folder.
Share: TypeAlias = tuple[int, int, list[Place]] | tuple[int, int, list[bytes]]


class DataLoss(StageError):
    """The rows requested by Spark are no longer in the staging directory."""


class Offset(TypedDict):
    """A position in the stream: a row count in the log with this uuid."""

    log: str
    rows: int


class ReportedOffset(Offset):
    """The latest offset, with the metrics: see nsqc.spark.stager for the reason."""

    metrics: StreamMetrics


class NsqStreamReader(Travels, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Opens the log on first use, and subscribes only once an offset that belongs to this log was passed."""

    def __init__(self, options: Stream):
        self.options = options
        self._stage: StageLog | None = None
        self._stager: Stager | None = None
        self._available_now = False
        self._planned = 0       # rows up to the end of the latest batch

    def travelling(self) -> dict[str, object]:
        """Executors get only the options."""
        return {"options": self.options, "_stage": None, "_stager": None, "_available_now": False,
                "_planned": 0}

    # ------------------------------------------------------------------ offsets

    # PySpark declares offsets as plain dicts.
    def initialOffset(self) -> Offset:  # type: ignore[override]
        """For a new checkpoint: starts with rows that an earlier one has not finished."""
        return self._offset(self.stage.released)

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxRowsPerBatch."""
        rows = self.options.maxRowsPerBatch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query reads nsqd's current messages, then ends."""
        self._available_now = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # type: ignore[override]
        """The end of a batch that starts at start. Waits only if availableNow must know whether more will arrive."""
        begin = self._row_of(start)
        self.stage.release(begin)
        stager = self._started()
        stager.wake()
        if self._available_now:
            self._wait_for_more(stager, begin, limit)
        if stager.error is not None:
            raise StageError(str(stager.error)) from stager.error
        end = self._limited(stager, begin, limit)
        if self.options.transport == "inline":
            end = min(end, self.stage.rows_within(begin, INLINE_BYTES))
        self._planned = end
        return self._offset(end)

    def reportLatestOffset(self) -> ReportedOffset:  # type: ignore[override]
        """Everything staged, and the metrics."""
        return {**self._offset(self.stage.rows), "metrics": self.metrics()}

    def metrics(self) -> StreamMetrics:
        """For StreamingQueryProgress; docs/spark.md describes each."""
        stage, stager = self.stage, self._stager
        # Not stage.released alone: Spark reports a batch as finished with the next one, so never for the last one.
        first = max(self._planned, stage.released)
        oldest, size = stage.oldest(first), sum(place.length for place in stage.places(first, stage.rows))
        consumer = stager.metrics() if stager is not None else IDLE
        return {
            "source": shown(self.options), "backlog": stage.rows - first, "backlogBytes": size,
            "oldestAgeSeconds": None if oldest is None else round(max(time.time() - oldest / 1e6, 0), 3), **consumer}

    def commit(self, end: Offset) -> None:  # type: ignore[override]
        """Spark has finished all rows before this offset."""
        self.stage.release(self._row_of(end))
        if self._stager is not None:
            self._stager.wake()

    def _offset(self, row: int) -> Offset:
        return {"log": self.stage.uuid, "rows": row}

    def _row_of(self, offset: Offset) -> int:
        """The row of an offset in this log. Raises DataLoss."""
        stage = self.stage
        row = offset.get("rows")
        if type(row) is not int or "log" not in offset:
            raise DataLoss(f"nsq: the checkpoint has {json.dumps(offset)[:200]}, which is not an offset of a channel: "
                           "it belongs to another query, or was changed. Give this query another checkpointLocation")
        if offset["log"] != stage.uuid:
            return self._loss(f"the checkpoint belongs to another staging log ({offset['log']}, this is {stage.uuid})",
                              stage.released)
        if row < stage.first:
            return self._loss(f"rows {row} to {stage.first} are gone from it", stage.first)
        if row > stage.rows:
            return self._loss(f"it ends at row {stage.rows}, the checkpoint at {row}", stage.rows)
        return row

    def _loss(self, what: str, row: int) -> int:
        """Continues at row, if data loss is allowed. Raises DataLoss."""
        text = f"stagingDir={self.options.stagingDir}: {what}: rows that were finished at nsqd are lost to this query"
        if self.options.failOnDataLoss:
            raise DataLoss(f"{text}; failOnDataLoss=false continues without them")
        log.error("%s; continuing at row %d", text, row)
        return row

    def _limited(self, stager: Stager, begin: int, limit: ReadLimit) -> int:
        rows = self.stage.rows
        if isinstance(limit, ReadMaxRows):
            return min(rows, begin + limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            return self.stage.rows_within(begin, limit.max_bytes)
        if isinstance(limit, ReadMinRows):
            waits = rows - begin < limit.min_rows and not self._available_now and not stager.full
            return begin if waits else rows
        if isinstance(limit, ReadAllAvailable):
            return rows
        raise NotImplementedError(f"nsq: the read limit {limit} is not supported")

    def _wait_for_more(self, stager: Stager, begin: int, limit: ReadLimit) -> None:
        """Waits for a whole batch, the end of the topic, or a full log."""
        stage = self.stage
        enough = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        unreachable_since: float | None = None
        while not stager.error and not stager.drained():
            rows = stage.rows - begin
            if rows and (stager.full or (enough is not None and rows >= enough)):
                return
            now = time.monotonic()
            unreachable_since = (unreachable_since or now) if stager.unreachable() else None
            if unreachable_since is not None and now - unreachable_since >= self.options.timeout:
                raise StageError(f"no nsqd is reachable: {stager.down_text()}")
            with stager.changed:
                stager.changed.wait(POLL_SECONDS)

    # ------------------------------------------------------------------ life cycle

    @property
    def stage(self) -> StageLog:
        """The log, opened on first use."""
        if self._stage is None:
            options = self.options
            self._stage = StageLog(options.stagingDir, options.topic, options.channel, options.segmentBytes,
                                   max(KEEP_ROWS, 4 * options.maxInFlight * options.connections),
                                   options.onBadRecord == "skip")
        return self._stage

    def _started(self) -> Stager:
        """The stager, started on first use."""
        if self._stager is None:
            self._stager = Stager(self.options, self.stage)
            if self._available_now:
                self._stager.drain_from_now()
            # Spark ends this process by SIGTERM when a query is stopped, perhaps during stop(): then the exit handler
            # calls it.
            atexit.register(self.stop)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, exit_cleanly)
            self._stager.start()
        return self._stager

    def stop(self) -> None:
        """Requeues unstaged messages, and releases the folder. Idempotent."""
        if self._stager is not None:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._stager.stop()
            self._stager = None
            atexit.unregister(self.stop)
        if self._stage is not None:
            self._stage.close()
            self._stage = None

    # ------------------------------------------------------------------ batches

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:  # type: ignore[override]
        """Equal shares of the rows from start to end. A repeated batch has the same rows."""
        if start == end:
            return []
        first, last = self._row_of(start), self._row_of(end)
        return [InputPartition(self._packed(*share))
                for share in shares(self.stage, first, last, self.options.numPartitions)]

    def _packed(self, first: int, end: int, places: list[Place]) -> Share:
        """The data needed by an executor."""
        if self.options.transport == "inline":
            return first, end, [read_place(place) for place in places]
        return first, end, places

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on an executor: the rows of a share."""
        share: Share = partition.value
        first, end, parts = share
        return joined(batch for part in parts for batch in self._frame(part, first, end))

    def _frame(self, part: Place | bytes, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows of a frame that belong to the share; none if a bad frame is to be skipped."""
        try:
            data = part if isinstance(part, bytes) else read_place(part)
            batch, begin = stagelog.decode_frames(data, self.options.topic), stagelog.read_head(data).first
        except stagelog.BadFrame as error:
            where = "a frame" if isinstance(part, bytes) else f"{part.path} at offset {part.offset}"
            if self.options.onBadRecord == "fail":
                raise StageError(f"{where}: {error}: rows of this batch are lost; "
                                 "onBadRecord=skip continues without them") from None
            log.error("%s: %s: its rows are skipped", where, error)
        except FileNotFoundError as error:
            raise DataLoss(f"{error.filename} does not exist: stagingDir must be a folder that all executors see, "
                           "or use transport=inline") from None
        else:
            skip = max(first - begin, 0)
            yield batch.slice(skip, min(end, begin + batch.num_rows) - begin - skip)


class Refusal(DataSourceStreamReader):
    """Substitute for a reader with wrong options: raises the error on every call. Spark requests offsets
    first."""

    def __init__(self, error: Exception):
        self._error = error

    def _refuse(self, *_: object) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = getDefaultReadLimit = partitions = read = _refuse  # type: ignore[assignment]


def exit_cleanly(*_: object) -> None:
    """For SIGTERM: exits with all handlers; a second SIGTERM does not disturb that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: each costs Spark about as much as a thousand rows."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if pending and (rows + batch.num_rows > STEP_ROWS or size + batch.nbytes > STEP_BYTES):
            yield pa.concat_batches(pending)
            pending, rows, size = [], 0, 0
        pending.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if pending:
        yield pa.concat_batches(pending)


def shares(stage: StageLog, first: int, last: int, count: int) -> list[tuple[int, int, list[Place]]]:
    """(first row, end, frames) of each of up to count shares of the rows from first to last."""
    rows = last - first
    count = min(count, rows)
    bounds = [first + rows * number // count for number in range(count + 1)]
    return [(begin, end, stage.places(begin, end)) for begin, end in pairwise(bounds)]
