"""spark.readStream.format("nsq") without a channel: the logs of topics as a stream. checkpoint.py has its offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from nsqc.spark.log import cluster as bounds
from nsqc.spark.log.api import DataLoss, State, Unreachable
from nsqc.spark.log.checkpoint import Lag, Offset, ids_of, moved_to, offset_of, places_of, unfit
from nsqc.spark.log.cluster import Cluster, Snapshot
from nsqc.spark.log.narrow import Times
from nsqc.spark.log.ranges import Place, Range, advance, bundle, count, divide, shares
from nsqc.spark.log.table import cluster_of, read
from nsqc.spark.options import LogStream, shown
from nsqc.spark.travel import Travels
from nsqc.spark.values import LATEST
from nsqc.store.files import boot_of

# ====================================================================== stream

log = logging.getLogger("nsqc.spark")

POLL_SECONDS = 0.5
NOWHERE: Mapping[Place, int] = {}
NO_IDS: Mapping[Place, str] = {}


class Begins(NamedTuple):
    """The start of a batch: all logs, those that do not continue the previous batch, the ids of those read before, and
    remarks for when the batch is planned, each with the number of lost messages."""

    at: dict[Place, int]
    joined: dict[Place, int]
    ids: dict[Place, str]
    remarks: list[tuple[str, int]]


class LogStreamReader(Travels, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in a process beside the driver; read() runs on the executors."""

    def __init__(self, options: LogStream, wanted: list[str]) -> None:
        self.options = options
        self.wanted = wanted
        self._made: Cluster | None = None
        self._snapshot: Snapshot | None = None              # the latest
        self._stop_at: dict[Place, int] | None = None       # for availableNow
        self._available_now = False
        self._answered = self._last_batch = time.monotonic()
        self._lag = Lag(shown(options))
        self._has_topics = False            # every topic of the options has been found
        self._deleted: set[Place] = set()   # already warned of

    def travelling(self) -> dict[str, object]:
        """Executors get only the state needed by read()."""
        return {"options": self.options, "wanted": self.wanted}

    # ------------------------------------------------------------------ offsets

    def initialOffset(self) -> Offset:
        """The options' start, for a new checkpoint. Waits until all nodes answer."""
        snapshot = self._all_nodes()
        self._need_topics(snapshot)
        return offset_of(bounds.starts(self.options, self._cluster, snapshot, LATEST), {}, ids_in(snapshot))

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger."""
        most = self.options.maxOffsetsPerTrigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query reads the current messages, then ends."""
        self._available_now = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of a batch that starts at start; start itself while there is nothing to read."""
        before, ids = places_of(start, "topics"), ids_of(start)
        # The offsets of topics no longer in the options stay in the checkpoint.
        known = {place: offset for place, offset in before.items() if self._cluster.wants(place)}
        if self._available_now and self._stop_at is None:
            snapshot = self._all_nodes(known, ids)
            self._stop_at = {place: state.next for place, state in snapshot.states.items()}
        else:
            snapshot = self._look(known)
        self._need_topics(snapshot, known)
        begins = self._begins(before, ids, snapshot)
        waiting = self._waiting_messages(begins.at, snapshot)
        if not any(waiting.values()) and (left := self._unread(begins.at, snapshot)):
            # Nothing else is left to read: now wait for their nodes.
            snapshot = self._all_nodes({**known, **left}, ids)
            begins = self._begins(before, ids, snapshot)
            waiting = self._waiting_messages(begins.at, snapshot)
        end = self._planned(start, begins, waiting, snapshot, limit)
        if end is not start:    # includes joined logs: each remark is made once
            for text, messages in begins.remarks:
                self._lag.lost(messages)
                log.warning("%s", text)
        return end

    def _planned(self, start: Offset, begins: Begins, waiting: Mapping[Place, int], snapshot: Snapshot,
                 limit: ReadLimit) -> Offset:
        """The end of a batch of the waiting messages, within the limit."""
        total = sum(waiting.values())
        if not total or self._too_few(total):
            self._lag.planned(begins.at, snapshot)
            return start
        part = shares(waiting, limit.max_rows) if isinstance(limit, ReadMaxRows) else waiting
        ends = dict(begins.at)
        for place, messages in part.items():
            if messages == waiting[place]:
                ends[place] = max(self._end(place, snapshot.states[place]), ends[place])    # after a gap, too
            elif messages:
                ends[place] = advance(snapshot.states[place].segments, ends[place], messages)
        self._last_batch = time.monotonic()
        self._lag.planned(ends, snapshot)
        return offset_of(ends, begins.joined, {**begins.ids, **ids_in(snapshot)})

    def _waiting_messages(self, begins: Mapping[Place, int], snapshot: Snapshot) -> dict[Place, int]:
        return {place: count(state.segments, begins[place], self._end(place, state))
                for place, state in snapshot.states.items()}

    def _unread(self, begins: Mapping[Place, int], snapshot: Snapshot) -> dict[Place, int]:
        """For availableNow: the ends of logs with unread messages whose nodes do not answer."""
        return {place: stop for place, stop in (self._stop_at or {}).items()
                if place not in snapshot.states and begins.get(place, 0) < stop}

    # Any: PySpark declares offsets as plain dicts
    def reportLatestOffset(self) -> dict[str, Any]:
        """The current ends, and the metrics."""
        snapshot = self._snapshot or Snapshot()
        ends = {place: state.next for place, state in snapshot.states.items()}
        return {**offset_of(ends, {}, ids_in(snapshot)), "metrics": self._lag.metrics(self._cluster, snapshot)}

    def commit(self, end: Offset) -> None:
        """Nothing to do: readers do not affect what the log retains."""

    def stop(self) -> None:
        """Ends the connections."""
        if self._made is not None:
            self._made.close()
            self._made = None

    def _end(self, place: Place, state: State) -> int:
        """The last position to read. Logs that joined after the query started are left to the next one."""
        return state.next if self._stop_at is None else min(state.next, self._stop_at.get(place, state.first))

    def _begins(self, before: Mapping[Place, int], ids: Mapping[Place, str], snapshot: Snapshot) -> Begins:
        """The end of the previous batch, except for moved logs, and those read from their first offset: new ones, and
        those that have lost the next messages. Raises DataLoss."""
        moved = moved_to(before, ids, ids_in(snapshot))
        deleted = snapshot.gone & before.keys() - moved.keys()
        self._are_deleted(deleted, before)
        at = {moved.get(place, place): offset for place, offset in before.items() if place not in deleted}
        ids = {moved.get(place, place): log_id for place, log_id in ids.items() if place in before}
        joined = {now: before[place] for place, now in moved.items()}
        remarks = [(f"topic {place.topic} at {place.node} is at {now.node} now" if now in snapshot.states else
                    f"another log of topic {place.topic} is at {place.node} now: waiting for the previous one",
                    0) for place, now in moved.items()]
        for place, state in snapshot.states.items():
            begin = at.get(place)
            if begin is None:
                remarks.append((f"topic {place.topic} at {place.node} has joined and is read from offset "
                                f"{state.first} on", 0))
            elif state.id and ids.get(place, state.id) != state.id:
                remarks.append(self._loss(
                    DataLoss(f"nsq: topic {place.topic} at {place.node} was deleted and created again since the "
                             f"previous batch ended at offset {begin}: its log has another id"), 0))
            elif begin > state.next:
                remarks.append(self._loss(
                    DataLoss(f"nsq: topic {place.topic} at {place.node} ends at offset {state.next}, the checkpoint at "
                             f"{begin}: it was deleted and created again, or its files were replaced"), 0))
            elif begin < state.first:
                remarks.append(self._loss(
                    DataLoss(f"nsq: topic {place.topic} at {place.node} begins at offset {state.first}, the checkpoint "
                             f"at {begin}: retention has removed the messages in between"), state.first - begin))
            else:
                continue
            joined[place] = state.first
        return Begins({**at, **joined}, joined, ids, remarks)

    def _are_deleted(self, deleted: Set[Place], before: Mapping[Place, int]) -> None:
        """Warns once about each of these logs. Raises DataLoss unless that is allowed."""
        for place in sorted(deleted - self._deleted):
            text, _ = self._loss(DataLoss(
                f"nsq: topic {place.topic} at {place.node} was deleted; the previous batch ended at offset "
                f"{before[place]}, messages published after it are lost"), 0)
            log.warning("%s", text)
        self._deleted |= deleted

    def _loss(self, error: DataLoss, messages: int) -> tuple[str, int]:
        """The remark if losses are allowed, and the number of lost messages. Raises the error."""
        if self.options.failOnDataLoss:
            raise error
        return f"{error}; continuing without them (failOnDataLoss=false)", messages

    def _too_few(self, total: int) -> bool:
        """Whether minOffsetsPerTrigger has to wait."""
        least = self.options.minOffsetsPerTrigger
        return (least is not None and total < least and not self._available_now
                and time.monotonic() - self._last_batch < self.options.maxTriggerDelay)

    # ------------------------------------------------------------------ nodes

    @property
    def _cluster(self) -> Cluster:
        if self._made is None:
            self._made = cluster_of(self.options, self.options.lookupInterval)
        return self._made

    def _look(self, known: Mapping[Place, int]) -> Snapshot:
        """The logs of all responding nodes. Raises Unreachable if none has answered for too long."""
        try:
            snapshot = self._cluster.look(known)
        except Unreachable as error:
            snapshot = Snapshot(down={"nsqlookupd": str(error)})
        why = "; ".join(f"{node}: {text}" for node, text in sorted(snapshot.down.items()))
        now = time.monotonic()
        if snapshot.answered or not why:
            self._answered = now
        elif now - self._answered >= self.options.failWhenUnreachable > 0:
            raise Unreachable(f"nsq: no node has answered for {now - self._answered:.0f} s: {why}")
        self._lag.down = {**snapshot.down, **snapshot.silent}
        self._snapshot = snapshot
        return snapshot

    def _all_nodes(self, known: Mapping[Place, int] = NOWHERE, ids: Mapping[Place, str] = NO_IDS) -> Snapshot:
        """The logs of all nodes, including those of places, which are waited for. Raises Unreachable."""
        def complete() -> Snapshot:
            snapshot = self._look(known)
            moved = moved_to(known, ids, ids_in(snapshot))
            left = {place.node for place in moved}
            gone = [place for place in known if moved.get(place, place) not in snapshot.states
                    and place not in snapshot.gone]
            down = {node: why for node, why in snapshot.down.items() if node not in left}
            if (down or gone) and not (snapshot.states and not self.options.failOnDataLoss):
                down = down or {place.node: f"unknown, but has topic {place.topic}" for place in gone}
                raise Unreachable("nsq: " + "; ".join(f"{node}: {why}" for node, why in sorted(down.items())))
            return snapshot
        return self._waiting(complete)

    def _need_topics(self, snapshot: Snapshot, known: Collection[Place] = ()) -> None:
        """Raises NoTopic for a topic that no node has when the query starts: once all nodes answer."""
        if not self._has_topics and not snapshot.down:
            self._cluster.need_topics(snapshot, known)
            self._has_topics = True

    def _waiting(self, call: Callable[[], Snapshot]) -> Snapshot:
        deadline = time.monotonic() + self.options.failWhenUnreachable
        while True:
            try:
                return call()
            except Unreachable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(POLL_SECONDS)
                self._cluster.forget_rests()

    # ------------------------------------------------------------------ batches

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The ranges from start to end, divided. Raises Unreachable."""
        begins = {**places_of(start, "topics"), **places_of(end, "joined")}
        planned = places_of(end, "topics")
        if planned.keys() - begins.keys():
            raise unfit(end)
        ends = {place: offset for place, offset in planned.items() if begins[place] < offset}
        ids = ids_of(end)
        snapshot = self._snapshot
        if snapshot is None or any(place not in snapshot.states or snapshot.states[place].next < offset
                                   for place, offset in ends.items()):
            snapshot = self._all_nodes(ends, ids)
        moved = moved_to(ends, ids, ids_in(snapshot))
        ranges = []
        for place, offset in ends.items():
            now = moved.get(place, place)
            if now in snapshot.states:
                ranges.append(Range(now, snapshot.http[now.node], begins[place], offset, ids.get(place, ""),
                                    boot_of(snapshot.states[now].folder_key)))
            else:
                text, messages = self._loss(
                    DataLoss(f"nsq: topic {place.topic} at {place.node} no longer exists: offsets {begins[place]} to "
                             f"{offset} cannot be read"), offset - begins[place])
                self._lag.lost(messages)
                log.warning("%s", text)
        segments = {place: state.segments for place, state in snapshot.states.items()}
        least, most = self.options.minPartitions, self.options.maxRecordsPerPartition
        parts = self._with_lost(ranges, divide(ranges, segments, least, most))
        return [InputPartition(self._cluster.located(bundled)) for bundled in bundle(parts, segments, least, most)]

    def _with_lost(self, ranges: list[Range], parts: list[Range]) -> list[Range]:
        """Empty ranges are read, too: their tasks report the missing messages."""
        there = {part.place for part in parts}
        return parts + [one for one in ranges if one.place not in there]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on an executor: the messages of some ranges."""
        return read(partition.value, self.options, self.wanted, Times())


def ids_in(snapshot: Snapshot) -> dict[Place, str]:
    """The ids of logs."""
    return {place: state.id for place, state in snapshot.states.items()}
