"""The rows of ranges: code that runs on an executor. Knows no Spark."""

from __future__ import annotations

import logging
import os
import stat
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby

import pyarrow as pa

from nsqc.spark import columns
from nsqc.spark.columns import LogColumns
from nsqc.spark.log.api import BadAnswer, DataLoss, LogApi, LogError, Piece, State, patiently
from nsqc.spark.log.narrow import Times
from nsqc.spark.log.ranges import Place, Range, count, lost
from nsqc.spark.options import Log
from nsqc.store.files import boot_id, folder_key
from nsqc.store.log.names import FRAMES_AT, Segment
from nsqc.store.log.reading import FRAME_MOST, ID, OFFSET, ORIGIN, TIMESTAMP, VALUE, LogBlock, SegmentBlocks
from nsqc.store.log.segment import manifest_id

# ====================================================================== local
# Reads records from the files of a node on the same machine, without querying it. Knows no Spark and no network.
#
# Anything inconsistent is left to the node, which knows and reports the cause.

MANIFEST_BYTES = 4096       # an upper bound of its size


class LocalLog:
    """A log in the folder reported by its node. Keeps no file open: a paused reader holds no removed files."""

    def __init__(self, state: State, max_body: int) -> None:
        """state: as reported by the node. max_body: size of the largest message read here."""
        self._folder = state.folder
        self._key = state.folder_key
        self._id = state.id
        # Only records counted by the node: later bytes may be refused or abandoned records.
        self._segments = state.segments
        self._max_body = max_body
        self._blocks = SegmentBlocks()

    def piece(self, offset: int, end: int, max_bytes: int) -> Piece | None:
        """Intact records from an offset to before another; of one segment, and at least one. None: query the node
        instead."""
        at = bisect_right(self._segments, offset, key=lambda segment: segment.first) - 1
        if at < 0 or offset >= self._segments[at].end or not os.path.isabs(self._folder):
            return None
        segment = self._segments[at]
        try:
            with (_opened(self._folder, os.O_DIRECTORY) as folder, _opened("manifest", 0, folder) as manifest,
                  _opened(f"{segment.first:020}.log", 0, folder) as file):
                if not self._key or folder_key(folder) != self._key or not _are_files(manifest, file):
                    return None
                # A topic that is created again has a log with another id.
                if f"{manifest_id(os.pread(manifest, MANIFEST_BYTES, 0)) or 0:016x}" != self._id:
                    return None
                place = Segment(segment.first, segment.end, FRAMES_AT + segment.bytes, segment.salt)
                block = self._blocks.read(file, place, offset, end, max_bytes)
        except (OSError, ValueError):       # ValueError: a path with a NUL
            return None
        return None if block is None or block.largest > self._max_body else Piece(offset, block.next, 0, block)


@contextmanager
def _opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _are_files(*descriptors: int) -> bool:
    return all(stat.S_ISREG(os.fstat(descriptor).st_mode) for descriptor in descriptors)


# ====================================================================== rows

log = logging.getLogger("nsqc.spark")

BATCH_BYTES = 16 << 20
# Finding the files costs a request: worth it if the remaining data is this many times the first answer.
WORTH_FILES = 4
BITS = {"value": VALUE, "timestamp": TIMESTAMP, "id": ID, "offset": OFFSET, "origin": ORIGIN}


def read(parts: Iterable[Range], options: Log, wanted: list[str], times: Times) -> Iterator[pa.RecordBatch]:
    """The messages of ranges that were published within these times. Raises LogError."""
    for http, ranges in groupby(parts, key=lambda part: part.http):
        api = LogApi(http, options)
        try:
            for part in ranges:
                yield from _Reader(api, part, options, wanted, times).batches()
        finally:
            api.close()


class _Reader:
    """Requests the next records before it returns the current ones, so the node reads ahead. On the node's machine, it
    reads data beyond the first answer from the node's files, as long as they are consistent.
    """

    def __init__(self, api: LogApi, part: Range, options: Log, wanted: list[str], times: Times) -> None:
        self._api = api
        self._part = part
        self._options = options
        self._schema = columns.schema(wanted)
        self._bits = bits_of(wanted)
        self._times = times
        self._buffer = bytearray(max(options.fetchBytes, FRAME_MOST))
        self._at = part.start       # the next offset
        self._asked = False
        self._files: LocalLog | None = None
        self._may_have_files = options.localFiles and bool(part.id) and part.boot_id == boot_id() != ""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All of them. Raises LogError."""
        while self._at < self._part.end:
            block = self._block()
            if block is None:
                continue
            self._ask_ahead()
            while (read := block.batch(self._options.batchRows, BATCH_BYTES, self._bits)) is not None:
                batch = record_batch(self._part.place, self._schema, read)
                if not self._times.all:
                    batch = within(batch, self._times)
                if batch.num_rows:
                    yield batch

    def _block(self) -> LogBlock | None:
        """The next records; None: retry at the next offset."""
        options, part = self._options, self._part
        try:
            piece, missing = patiently(self._fetched, options.failWhenUnreachable, options.backoff)
        except DataLoss as error:
            self._pass_over(error, part.end if error.sound is None else error.sound)
            return None
        except LogError as error:
            self._pass_over(type(error)(f"nsq: topic {part.place.topic} at {part.place.node}, offset {self._at}: "
                                        f"{error}"), part.end)
            return None
        where, asked = f"topic {part.place.topic} at {part.place.node}", self._at
        if missing:
            self._pass_over(DataLoss(f"{where}: {missing} messages from offset {self._at} on are missing: files of "
                                     "segments are gone"), piece.first)
        if piece.damaged:
            self._pass_over(DataLoss(f"{where}: {piece.damaged} messages from offset {self._at} on are damaged"),
                            self._at + piece.damaged)
        elif piece.next == asked:
            self._pass_over(DataLoss(f"{where} ends at offset {piece.next}, but {part.end} was requested: it was "
                                     "deleted and created again, or its files were replaced"), part.end)
            return None
        self._at = piece.next
        return piece.block

    def _fetched(self) -> tuple[Piece, int]:
        """Records, and the number of messages missing before them without being damaged."""
        piece = None
        if self._files is not None:
            piece = self._files.piece(self._at, self._part.end, self._options.fetchBytes)
        if piece is None:
            self._files = None
            if not self._asked:
                self._ask()
            self._asked = False
            piece = self._api.finish(self._buffer)
        jumped = piece.first - piece.damaged
        return piece, self._missing(jumped) if jumped > self._at else 0

    def _missing(self, first: int) -> int:
        """Messages between the next offset and the one where the node continues: numbering may have jumped."""
        state = self._api.state(self._part.place.topic)
        if count(state.segments, self._at, first) and self._at >= state.first:
            raise BadAnswer(f"{self._api.address}: /topic/read: it continues at offset {first}, but has {self._at}")
        return lost(state.segments, self._at, first)

    def _ask(self) -> None:
        part = self._part
        self._api.ask(part.place.topic, part.id, self._at, part.end - self._at, self._options.fetchBytes)
        self._asked = True

    def _ask_ahead(self) -> None:
        if self._at >= self._part.end or self._files is not None:
            return
        try:
            if self._may_have_files and self._part.end - self._at >= WORTH_FILES * (self._at - self._part.start):
                self._may_have_files = False
                state = self._api.state(self._part.place.topic)
                if state.id == self._part.id:
                    self._files = LocalLog(state, self._options.maxMsgSize)
                    return
            self._ask()
        except LogError:
            self._asked = False     # the next attempt requests it again

    def _pass_over(self, error: LogError, to: int) -> None:
        """Continues after unreadable messages, if that is allowed. Raises the error."""
        if self._options.failOnDataLoss or type(error) is LogError:
            raise error
        to = min(to, self._part.end)
        log.warning("%s: ignoring up to %d messages (failOnDataLoss=false)", error, to - self._at)
        self._at = max(self._at, to)


def bits_of(wanted: Iterable[str]) -> int:
    """The columns to request from a block."""
    return sum(BITS.get(column, 0) for column in wanted)


def record_batch(place: Place, schema: pa.Schema, read: LogColumns) -> pa.RecordBatch:
    """Columns of a block as rows of this log."""
    count, bodies, ends, times, ids, offsets, origins = read
    make = {
        "value": lambda: columns.bodies(ends, bodies, count),
        "topic": lambda: columns.same(place.topic, count),
        "id": lambda: columns.ids(ids, count),
        "timestamp": lambda: columns.fixed(columns.TIMESTAMP, times, count),
        "attempts": lambda: columns.zeros(count),
        "nsqd": lambda: columns.same(place.node, count),
        "offset": lambda: columns.fixed(pa.int64(), offsets, count),
        "origin": lambda: columns.origins(origins, count),
    }
    return pa.RecordBatch.from_arrays([make[name]() for name in schema.names], schema=schema)


def within(batch: pa.RecordBatch, times: Times) -> pa.RecordBatch:
    """The rows of a batch published within these times, given by its timestamp column."""
    import pyarrow.compute as pc  # slow to import, and few queries need it

    stamps = batch.column("timestamp").cast(pa.int64())
    bounds = pc.min_max(stamps).as_py()
    if times.start_us <= bounds["min"] and bounds["max"] < times.end_us:
        return batch
    return batch.filter(pc.and_(pc.greater_equal(stamps, times.start_us), pc.less(stamps, times.end_us)))
