"""The logs of nodes in a bucket. The driver follows each node's commits, executors read frames from objects, and no
node is queried, alive or dead. Knows no Spark.

A node's name is its name in the bucket. A log has the same id and the same offsets at the node and in the bucket, so a
stream can move between both.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from nsqc.bucket.checkpoint import LogMap
from nsqc.bucket.commit import DamagedError, Frames
from nsqc.bucket.reading import NodeReader
from nsqc.bucket.store import Bucket, BucketError, Missing, Unclear, open_bucket
from nsqc.spark import columns
from nsqc.spark.log.api import DataLoss, LogError, State, Unreachable
from nsqc.spark.log.cluster import Cluster, Snapshot
from nsqc.spark.log.narrow import Times
from nsqc.spark.log.ranges import LEAST_JUMP, LogSegment, Place, Range
from nsqc.spark.log.rows import BATCH_BYTES, bits_of, record_batch, within
from nsqc.spark.options import Log
from nsqc.store.log.reading import FRAME_MOST, LogBlock

log = logging.getLogger("nsqc.spark")


@contextmanager
def errors() -> Iterator[None]:
    """Errors of the bucket as those of logs. Another attempt helps if the store has not answered, or if an object was
    replaced by another one since the query was planned."""
    try:
        yield
    except (Unclear, Missing) as error:
        raise Unreachable(str(error)) from None
    except BucketError as error:
        raise LogError(f"nsq: {error}") from None


# ====================================================================== driver


class Known(NamedTuple):
    """What is known of a log: its map is replaced or extended by each look."""

    log_id: int
    map: LogMap


class BucketLogs:
    """The logs of one node, with the calls of LogApi that readers need."""

    def __init__(self, root: Bucket, node: str) -> None:
        with errors():
            self.reader = NodeReader(root, node)

    def refresh(self) -> None:
        """Reads the commits since the last call."""
        with errors():
            self.reader.refresh()

    def close(self) -> None:
        """Nothing is open."""

    def known(self, topic: str) -> Known | None:
        """The log of a topic. None: it has none."""
        found = self.reader.logs(topic)
        return Known(*max(found, key=lambda one: one[1].reserved)) if found else None

    def topics(self) -> set[str]:
        """The topics with a log."""
        return {one.topic for one in self.reader.whole.logs.values()}

    def state(self, topic: str) -> State:
        """What the bucket has of a topic's log."""
        known = self.known(topic)
        assert known is not None
        parts, trimmed = known.map.frames, known.map.trimmed
        first = max(trimmed, parts[0].first) if parts else trimmed
        return State(first, parts[-1].end if parts else first, None, sum(part.length for part in parts), tuple(
            LogSegment(max(part.first, first), part.end, part.length, part.salt) for part in parts),
            f"{known.log_id:016x}")

    def extents(self, topic: str, start: int, end: int) -> tuple[Frames, ...]:
        """The parts of objects with these messages."""
        known = self.known(topic)
        parts = known.map.frames if known else []
        at = bisect_right(parts, start, key=lambda part: part.end)
        return tuple(parts[at:bisect_left(parts, end, key=lambda part: part.first)])

    def offset_at(self, topic: str, time_ns: int) -> int:
        """The first message published at a time or later; the end, if there is none."""
        state = self.state(topic)
        parts = self.extents(topic, state.first, state.next)
        at = bisect_left(parts, time_ns, key=self._begin)
        for row in self._rows(parts[at - 1], max(parts[at - 1].first, state.first)) if at else ():
            if row[1] >= time_ns:
                return row[0]
        return max(parts[at].first, state.first) if at < len(parts) else state.next

    def time_of(self, topic: str, offset: int) -> int | None:
        """Publish time of the first message from an offset on, in ns; None: none."""
        found = self.extents(topic, offset, offset + LEAST_JUMP)
        return next((row[1] for row in self._rows(found[0], max(offset, found[0].first))), None) if found else None

    def _begin(self, part: Frames) -> int:
        """Publish time of an extent's first message: its first frame is read alone, unless that is large."""
        with errors():
            for length in (min(part.length, FRAME_MOST), part.length):
                data = self.reader.bucket.get_part(part.object, part.at, length)
                for row in frames_in(part, data, part.first, part.end):
                    return row[1]
        raise LogError(f"nsq: {part.object}: no message at byte {part.at}")

    def _rows(self, part: Frames, start: int) -> LogBlock:
        with errors():
            return frames_in(part, self.reader.bucket.get_part(part.object, part.at, part.length), start, part.end)


class BucketCluster(Cluster):
    """The nodes of a bucket."""

    def __init__(self, options: Log, refresh: float = 0.0) -> None:
        super().__init__(options, refresh)
        self._root = root_of(options, options.timeout)
        self._nodes: dict[str, BucketLogs] = {}

    def api(self, node: str) -> BucketLogs:  # type: ignore[override]  # the calls of LogApi that readers need
        return self._nodes[node]

    def look(self, known: Collection[Place] = ()) -> Snapshot:
        """The current logs: see Cluster."""
        found = Snapshot()
        now = time.monotonic()
        if not self._named or now - self._refreshed >= self._refresh:
            with errors():
                self._named = {node: set() for node in self._root.folders()}
            self._refreshed = now
            if not self._named:
                raise LogError(f"nsq: option bucket={self._options.bucket} has no nodes")
        nodes = list(self._named)
        for node, states in zip(nodes, self._each(nodes, self._states_in), strict=True):
            if isinstance(states, str):
                found.down[node] = states
            else:
                found.states.update(states)
                found.answered += 1
        found.lacking = {place for place in known if place not in found.states}
        found.http = dict.fromkeys(nodes, "")
        return found

    def _states_in(self, node: str) -> dict[Place, State]:
        if node in self._nodes:
            self._nodes[node].refresh()
        else:
            self._nodes[node] = BucketLogs(self._root, node)
        logs = self._nodes[node]
        return {place: logs.state(place.topic) for topic in sorted(logs.topics())
                if self.wants(place := Place(topic, node))}

    def located(self, parts: Sequence[Range]) -> tuple[Range, ...]:
        """The same ranges, with the objects to read."""
        return tuple(part._replace(extents=self._nodes[part.place.node].extents(part.place.topic, part.start, part.end))
                     for part in parts)


def root_of(options: Log, patience: float) -> Bucket:
    """The bucket of the options. Raises LogError if a library is missing."""
    assert options.bucket is not None
    with errors():
        return open_bucket(options.bucket, patience)


# ====================================================================== executors


def read(parts: Sequence[Range], options: Log, wanted: list[str], times: Times) -> Iterator[pa.RecordBatch]:
    """The messages of ranges that were published within these times. The next extent is requested while Spark takes the
    rows of one. Raises LogError."""
    root = root_of(options, options.failWhenUnreachable)
    schema, bits = columns.schema(wanted), bits_of(wanted)
    with ThreadPoolExecutor(1, "nsqc-bucket") as ahead:
        for part in parts:
            node = root.below(part.place.node)
            at = part.start
            waiting = [(extent, ahead.submit(node.get_part, extent.object, extent.at, extent.length))
                       for extent in part.extents[:2]]
            rest = iter(part.extents[2:])
            while waiting:
                extent, future = waiting.pop(0)
                if 0 < extent.first - at < LEAST_JUMP:
                    ignore(part, options, DataLoss(f"{extent.first - at} messages are missing"), at)
                at, block = max(at, extent.first), None
                try:
                    with errors():
                        block = frames_in(extent, future.result(), at, min(part.end, extent.end), whole=True)
                except LogError as error:
                    ignore(part, options, error, at)
                at = extent.end
                if (more := next(rest, None)) is not None:
                    waiting.append((more, ahead.submit(node.get_part, more.object, more.at, more.length)))
                while block is not None and (got := block.batch(options.batchRows, BATCH_BYTES, bits)) is not None:
                    batch = record_batch(part.place, schema, got)
                    if not times.all:
                        batch = within(batch, times)
                    if batch.num_rows:
                        yield batch
            if 0 < part.end - at < LEAST_JUMP:
                ignore(part, options, DataLoss(f"{part.end - at} messages are missing"), at)


def ignore(part: Range, options: Log, error: LogError, at: int) -> None:
    """Warns about messages that cannot be read. Raises the error unless losses are allowed."""
    text = f"topic {part.place.topic} at {part.place.node}, offset {at}: {str(error).removeprefix('nsq: ')}"
    if options.failOnDataLoss or isinstance(error, Unreachable):
        raise type(error)(f"nsq: {text}")
    log.warning("%s: ignoring these messages (failOnDataLoss=false)", text)


def frames_in(part: Frames, data: bytes, start: int, end: int, whole: bool = False) -> LogBlock:
    """The messages `start` to before `end` of the beginning of an extent, or of all of it. Raises DamagedError."""
    try:
        block = LogBlock(data, len(data) if whole else None, part.salt, part.position, start, end)
        if not whole:
            block.more(len(data))
        return block
    except ValueError as error:
        raise DamagedError(f"{part.object}: messages {part.first} to {part.end - 1} are damaged: {error}") from None

