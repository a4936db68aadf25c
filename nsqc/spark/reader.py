"""spark.readStream.format("nsq"): offsets are rows of the staging log; this runs in a process beside the driver.

An offset is {"log": uuid, "rows": n}. A start that Spark passes is done with: it asks for what follows only when the
batch before is in its commit log.
"""

from __future__ import annotations

import atexit
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

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

from nsqc.spark import frames
from nsqc.spark.options import Stream
from nsqc.spark.stagelog import Place, StageError, StageLog, log, read_place
from nsqc.spark.stager import IDLE, Stager

KEEP_ROWS = 100_000     # of the log, at least: to know redeliveries by after a restart
POLL_SECONDS = 0.05
STEP_ROWS = 10_000      # frames are joined up to so many rows before Spark gets them
STEP_BYTES = 8 << 20
INLINE_BYTES = 32 << 20  # of a batch whose rows pass through the driver's Java, which has them several times


class DataLoss(StageError):
    """The rows that Spark asks for are not in the staging directory any more."""


class NsqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Opens the log when it is first asked, and subscribes only when an offset that fits to it was given."""

    def __init__(self, options: Stream):
        self.options = options
        self._stage: StageLog | None = None
        self._stager: Stager | None = None
        self._available_now = False
        self._asked = 0     # rows up to which a batch was offered

    def __getstate__(self) -> dict:
        """Executors get the options only."""
        return {"options": self.options, "_stage": None, "_stager": None, "_available_now": False, "_asked": 0}

    # ------------------------------------------------------------------ offsets

    def initialOffset(self) -> dict:
        """For a new checkpoint: what an earlier one was not done with comes first."""
        return self._offset(self.stage.released)

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxRowsPerBatch."""
        rows = self.options.maxRowsPerBatch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what nsqd has now, then end."""
        self._available_now = True

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        """How far a batch from start on may go. Waits only where availableNow must know whether more comes."""
        begin = self._row_of(start)
        self.stage.release(begin)
        stager = self._started()
        stager.wake()
        if self._available_now:
            self._wait_for_more(begin, limit)
        if stager.error is not None:
            raise StageError(str(stager.error)) from stager.error
        end = self._limited(begin, limit)
        if self.options.transport == "inline":
            end = min(end, self.stage.rows_within(begin, INLINE_BYTES))
        return self._offset(end)

    def reportLatestOffset(self) -> dict:
        """All that is staged, and how the source is: nsqc.spark.progress has why this is the place."""
        return self._offset(self.stage.rows) | {"metrics": self.metrics()}

    def metrics(self) -> dict[str, Any]:
        """For StreamingQueryProgress; docs/spark.md says what each one is."""
        stage, stager = self.stage, self._stager
        oldest = stage.oldest()
        told = stager.metrics() if stager is not None else IDLE
        backlog = stage.rows - stage.released
        return {
            "backlog": backlog, "backlogBytes": stage.live_bytes,
            "oldestAgeSeconds": None if oldest is None else round(max(time.time() - oldest / 1e6, 0), 3), **told}

    def commit(self, end: dict) -> None:
        """Spark is done with all rows before this offset."""
        self.stage.release(self._row_of(end))
        if self._stager is not None:
            self._stager.wake()

    def _offset(self, row: int) -> dict:
        return {"log": self.stage.uuid, "rows": row}

    def _row_of(self, offset: dict) -> int:
        """The row of the log that an offset means. Raises DataLoss."""
        stage = self.stage
        row = offset["rows"]
        if offset["log"] != stage.uuid:
            return self._loss(f"the checkpoint belongs to another staging log ({offset['log']}, here is {stage.uuid})",
                              stage.released)
        if row < stage.first:
            return self._loss(f"rows {row} to {stage.first} are gone from it", stage.first)
        if row > stage.rows:
            return self._loss(f"it ends at row {stage.rows}, the checkpoint at {row}", stage.rows)
        return row

    def _loss(self, what: str, row: int) -> int:
        text = f"stagingDir={self.options.stagingDir}: {what}: rows that were finished at nsqd are lost to this query"
        if self.options.failOnDataLoss:
            raise DataLoss(f"{text}; failOnDataLoss=false goes on without them")
        log.error("%s; going on at row %d", text, row)
        return row

    def _limited(self, begin: int, limit: ReadLimit) -> int:
        rows = self.stage.rows
        if isinstance(limit, ReadMaxRows):
            return min(rows, begin + limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            return self.stage.rows_within(begin, limit.max_bytes)
        if isinstance(limit, ReadMinRows):
            waits = rows - begin < limit.min_rows and not self._available_now and not self._stager.full
            return begin if waits else rows
        if isinstance(limit, ReadAllAvailable):
            return rows
        raise NotImplementedError(f"nsq: the read limit {limit} means nothing for messages")

    def _wait_for_more(self, begin: int, limit: ReadLimit) -> None:
        """Until there is a whole batch, or nothing more to come, or no room for more."""
        stager, stage = self._stager, self.stage
        enough = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        alone_since = None
        while not stager.error and not stager.drained():
            rows = stage.rows - begin
            if rows and (stager.full or (enough is not None and rows >= enough)):
                return
            down = stager.unreachable()
            alone_since = None if down is None else alone_since or time.monotonic()
            if down and time.monotonic() - alone_since >= self.options.timeout:
                raise StageError(f"no nsqd can be reached: {stager.down_text()}")
            with stager.changed:
                stager.changed.wait(POLL_SECONDS)

    # ------------------------------------------------------------------ life

    @property
    def stage(self) -> StageLog:
        """The log, opened when it is first needed."""
        if self._stage is None:
            options = self.options
            self._stage = StageLog(options.stagingDir, options.topic, options.channel, options.segmentBytes,
                                   max(KEEP_ROWS, 4 * options.maxInFlight * options.connections),
                                   options.onBadRecord == "skip")
        return self._stage

    def _started(self) -> Stager:
        """The stager, which subscribes when it is first needed."""
        if self._stager is None:
            self._stager = Stager(self.options, self.stage)
            if self._available_now:
                self._stager.drain_from_now()
            # Spark ends this process by SIGTERM when a query is stopped, which may come in the midst of its calling
            # stop(): then the exit does it.
            atexit.register(self.stop)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, leave)
            self._stager.start()
        return self._stager

    def stop(self) -> None:
        """Hands back to nsqd what is not staged, and gives the folder free. Idempotent."""
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

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        """Equal shares of the rows from start up to end. A batch that is planned again has the same rows."""
        if start == end:
            return []
        first, last = self._row_of(start), self._row_of(end)
        return [InputPartition(self._packed(share)) for share in shares(self.stage, first, last,
                                                                        self.options.numPartitions)]

    def _packed(self, share: tuple[int, int, list[Place]]) -> tuple:
        """What an executor needs: (first row, end, places, or frames where it cannot see the folder)."""
        first, end, places = share
        if self.options.transport == "inline":
            return first, end, [read_place(place) for place in places]
        return first, end, [tuple(place) for place in places]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the rows of a share."""
        first, end, parts = partition.value
        return joined(batch for part in parts for batch in self._frame(part, first, end))

    def _frame(self, part: Any, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows of one frame that belong to the share; none where a bad frame is to be skipped."""
        try:
            data = part if isinstance(part, bytes) else read_place(Place(*part))
            batch, begin = frames.decode(data, self.options.topic), frames.read_head(data).first
        except frames.BadFrame as error:
            where = "a frame" if isinstance(part, bytes) else f"{part[0]} at offset {part[1]}"
            if self.options.onBadRecord == "fail":
                raise StageError(f"{where}: {error}: rows of this batch are lost; "
                                 "onBadRecord=skip goes on without them") from None
            log.error("%s: %s: its rows are skipped", where, error)
        except FileNotFoundError:
            raise DataLoss(f"{part[0]} is not there: stagingDir must be a folder that all executors see, "
                           "or use transport=inline") from None
        else:
            skip = max(first - begin, 0)
            yield batch.slice(skip, min(end, begin + batch.num_rows) - begin - skip)


class Refusal(DataSourceStreamReader):
    """Stands for a reader that cannot be: raises why when it is asked for anything. Spark asks for offsets first."""

    def __init__(self, error: Exception):
        self._error = error

    def initialOffset(self) -> dict:
        """Raises."""
        raise self._error

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        """Raises."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        """Raises."""
        raise self._error

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        """Raises."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises."""
        raise self._error


def leave(*_: Any) -> None:
    """SIGTERM: the process ends in order, and a second one does not disturb that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: each one costs Spark about as much as a thousand rows."""
    some: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if some and (rows + batch.num_rows > STEP_ROWS or size + batch.nbytes > STEP_BYTES):
            yield pa.concat_batches(some)
            some, rows, size = [], 0, 0
        some.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if some:
        yield pa.concat_batches(some)


def shares(stage: StageLog, first: int, last: int, count: int) -> list[tuple[int, int, list[Place]]]:
    """(first row, end, frames) for each of up to count shares of the rows from first up to last."""
    rows = last - first
    count = min(count, rows)
    bounds = [first + rows * number // count for number in range(count + 1)]
    return [(begin, end, stage.places(begin, end)) for begin, end in pairwise(bounds)]
