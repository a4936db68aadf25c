"""spark.read.format("nsq"): the logs of topics as a table."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from nsqc.spark.log import cluster as bounds
from nsqc.spark.log import narrow, rows
from nsqc.spark.log.api import Unreachable
from nsqc.spark.log.cluster import Cluster, Snapshot
from nsqc.spark.log.narrow import EVER, Narrow, Times
from nsqc.spark.log.ranges import Place, Range, bundle, divide
from nsqc.spark.options import Log, LogTable
from nsqc.spark.travel import Travels
from nsqc.spark.values import EARLIEST
from nsqc.store.files import boot_of

log = logging.getLogger("nsqc.spark")


def cluster_of(options: Log, refresh: float = 0.0) -> Cluster:
    """The nodes, or what a bucket has of them."""
    if options.bucket is None:
        return Cluster(options, refresh)
    from nsqc.spark.log.bucket import BucketCluster

    return BucketCluster(options, refresh)


def read(parts: tuple[Range, ...], options: Log, wanted: list[str], times: Times) -> Iterator[pa.RecordBatch]:
    """The messages of ranges that were published within these times. Raises LogError."""
    if options.bucket is None:
        return rows.read(parts, options, wanted, times)
    from nsqc.spark.log import bucket

    return bucket.read(parts, options, wanted, times)


# ====================================================================== table

LOOKS, PAUSE_SECONDS = 3, 0.3       # retries for nodes that do not answer, before a table fails


class LogTableReader(Travels, DataSourceReader):
    """Plans on the driver, reads on the executors."""

    def __init__(self, options: LogTable, wanted: list[str]) -> None:
        self.options = options
        self.wanted = wanted
        self.narrow = Narrow()

    def partitions(self) -> list[InputPartition]:
        """Ranges of the logs after the filters. Raises LogError."""
        with closing(cluster_of(self.options)) as cluster:
            snapshot = self._look(cluster)
            ranges = self._ranges(cluster, snapshot)
            segments = {place: state.segments for place, state in snapshot.states.items()}
            least, most = self.options.minPartitions, self.options.maxRecordsPerPartition
            return [InputPartition(cluster.located(parts))
                    for parts in bundle(divide(ranges, segments, least, most), segments, least, most)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of some ranges."""
        parts: tuple[Range, ...] | None = partition.value
        # None: Spark's own partition, if there are no ranges.
        return read(parts or (), self.options, self.wanted, self.narrow.times)

    def _look(self, cluster: Cluster) -> Snapshot:
        """All logs. Raises Unreachable unless all nodes answer, or some if losses are allowed; NoTopic."""
        for attempt in range(LOOKS):
            if attempt:
                time.sleep(PAUSE_SECONDS)
                cluster.forget_rests()
            snapshot = cluster.look()
            if not snapshot.down:
                break
        down = "; ".join(f"{node}: {why}" for node, why in sorted(snapshot.down.items()))
        if down and (self.options.failOnDataLoss or not snapshot.states):
            raise Unreachable(f"nsq: these nodes do not answer: {down}"
                              + ("; failOnDataLoss=false reads the others" if snapshot.states else ""))
        if down:
            log.warning("messages are missing, because these nodes do not answer (failOnDataLoss=false): %s", down)
        if not down:
            cluster.need_topics(snapshot)
        return snapshot

    def _ranges(self, cluster: Cluster, snapshot: Snapshot) -> list[Range]:
        options, only = self.options, self.narrow
        starts = bounds.starts(options, cluster, snapshot, EARLIEST)
        ends = bounds.ends(options, cluster, snapshot)
        places = [place for place in sorted(starts) if (only.nodes is None or place.node in only.nodes)
                  and (only.topics is None or place.topic in only.topics)]
        times = only.times
        if times.start_us > 0:
            reached = self._offsets_at(cluster, places, times.start_us)
            starts = {place: max(starts[place], reached[place]) for place in places}
        # Messages published after the end, while the clock was set back, must be examined: see option clockStep.
        end_us = times.end_us + round(options.clockStep * 1_000_000)
        if times.end_us < EVER and end_us < time.time() * 1_000_000:
            reached = self._offsets_at(cluster, places, max(end_us, 0))
            ends = {place: min(ends[place], reached[place]) for place in places}
        states = snapshot.states
        return [Range(place, snapshot.http[place.node], start, end, states[place].id,
                      boot_of(states[place].folder_key)) for place in places
                if (start := max(starts[place], only.start)) < (end := min(ends[place], only.end))]

    def _offsets_at(self, cluster: Cluster, places: list[Place], time_us: int) -> dict[Place, int]:
        return cluster.each(places, lambda api, place: api.offset_at(place.topic, min(time_us * 1000, EVER)))


class PushingReader(LogTableReader):
    """The same, with Spark's filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Applies filters of nodes, topics, offsets and times; returns the others."""
        wanted = self.wanted
        self.narrow, left = narrow.push(filters, wanted)
        if not self.narrow.times.all and "timestamp" not in wanted:
            self.narrow = replace(self.narrow, times=narrow.Times())
            return filters
        return left


def reader(options: LogTable, wanted: list[str]) -> LogTableReader:
    """With filters, if the options request it: Spark refuses a reader with filters unless its own setting allows
    them."""
    return (PushingReader if options.pushFilters else LogTableReader)(options, wanted)
