"""Stages messages from nsqd in the staging log, then sends FIN. One thread has all connections, one has the disk.

    connections ──batches──▶ writer: drop redeliveries, append, fdatasync ──ids──▶ connections: FIN

The writer takes the next batch when it has finished one, so a sync covers everything that arrived during the previous
one. Back-pressure: RDY 0 while the log is full, and no reading while the writer lags. Knows no Spark.
"""

from __future__ import annotations

import logging
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from nsqc.client import ClientError, ConnectError, Connection, LookupFailed, Refused, lookup
from nsqc.client.backoff import Backoff
from nsqc.client.batch import Columns, Ids
from nsqc.client.peers import Peer, Peers
from nsqc.client.waker import Waker
from nsqc.spark import columns, frames, mistakes
from nsqc.spark.channel_depth import ChannelDepth
from nsqc.spark.connect import connect
from nsqc.spark.options import Stream
from nsqc.spark.redelivery import Redeliveries
from nsqc.spark.stagelog import StageError, StageLog
from nsqc.spark.stream_metrics import ConsumerMetrics

log = logging.getLogger("nsqc.spark")

HAND_OVER_BYTES = 4 << 20   # bytes of messages at which the linger time ends early
TICK_SECONDS = 1.0
SHORTEST_PAUSE = 0.01       # between reconnects
LONGEST_PAUSE = 15.0
STOP_SECONDS = 10.0


# Metrics before a source consumes.
IDLE: ConsumerMetrics = {"depth": None, "nsqdUp": 0, "nsqdDown": {}, "unreachableSeconds": 0.0, "reconnects": 0,
                         "duplicates": 0, "paused": False}


class Unreachable(RuntimeError):
    """No nsqd was reachable for too long."""


class Load(NamedTuple):
    """The messages collected by one connection; the writer makes a frame of it. columns: from Inflow.columns()."""

    connection: Connection
    columns: Columns


class Stager:
    """Consumes a topic into a log after start(); stop() requeues messages that are not in the log."""

    def __init__(self, options: Stream, stage: StageLog):
        self.options = options
        self.stage = stage
        self.error: Exception | None = None     # why it ended
        self.duplicates = 0                     # messages that were not staged again
        self.reconnects = 0                     # reconnects after lost connections
        self.depth = ChannelDepth(options)
        self.changed = threading.Condition()    # rows were synced, or it has ended
        self._unreachable_since: float | None = None    # start of the current time without a connection
        self._redeliveries = Redeliveries()
        self._peers: Peers[Connection] = Peers(
            options.topic, options.channel, options.nsqd, options.nsqlookupd, options.maxInFlight, options.connections,
            options.lookupInterval, Backoff(max(options.backoff, SHORTEST_PAUSE), LONGEST_PAUSE))
        self._waker = Waker()
        self._loads: deque[list[Load]] = deque()    # for the writer; at most one waits
        self._loaded = threading.Condition()
        self._writing = False
        self._done: deque[tuple[Connection, Ids]] = deque()      # ids to finish
        self._stopping = False
        self._complete = False                  # nothing more will be passed to the writer
        self._since = 0.0                       # arrival of the oldest lingering message; 0: none
        self._full = False
        self._drain_ns = 0                      # drained() ignores newer messages
        self._last_old = time.monotonic()       # last time when an older message arrived, or could arrive again
        for address, ids in stage.newest_ids():     # staged by an earlier run, perhaps not finished
            self._redeliveries.suspect(address, ids)
        self._threads = [threading.Thread(target=self._run, args=(work,), name=f"nsq-{name}", daemon=True)
                         for name, work in (("receive", self._receive), ("write", self._write))]

    def start(self) -> None:
        """Connects and consumes in the background."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._last_old = time.monotonic()
        for thread in self._threads:
            thread.start()
        self.depth.start()

    def stop(self) -> None:
        """Finishes messages in the log, requeues the rest, and ends. Idempotent."""
        self._stopping = True
        self.depth.stop()
        self.wake()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(STOP_SECONDS)

    def wake(self) -> None:
        """Wakes the connections' loop: the log may have room again."""
        self._waker.wake()

    def drain_from_now(self) -> None:
        """From now on, drained() ignores messages published later."""
        self._drain_ns = time.time_ns()
        self._last_old = time.monotonic()

    def drained(self) -> bool:
        """Whether nsqd, although able to, has delivered nothing older than drain_from_now() for the idle time."""
        # In the order in which messages pass: a message that left one stage is already in the next.
        if (self._since or self._loads or self._writing or self._full or not self._peers.all_tried
                or self.unreachable()):
            return False
        return time.monotonic() - self._last_old >= self.options.idleMs / 1000

    def unreachable(self) -> bool:
        """Whether nothing can arrive: there are nsqd, all were tried, and none is connected."""
        return bool(self._peers.all) and not self._peers.connected and self._peers.all_tried

    def down_text(self) -> str:
        """The nsqd that are down, with the reasons."""
        down = self.down()
        if not down:
            return f"nsqlookupd knows no nsqd that has topic {self.options.topic}"
        return "; ".join(text if address in text else f"{address}: {text}" for address, text in sorted(down.items()))

    def down(self) -> dict[str, str]:
        """The nsqd without a connection, with the reasons."""
        up = {peer.address for peer, _ in self._peers.connected}
        return {peer.address: peer.error for peer in self._peers.all if peer.error and peer.address not in up}

    def metrics(self) -> ConsumerMetrics:
        """For the query's progress."""
        since = self._unreachable_since
        return {
            "depth": self.depth.latest(), "nsqdUp": len({peer.address for peer, _ in self._peers.connected}),
            "nsqdDown": self.down(), "unreachableSeconds": 0.0 if since is None else round(time.monotonic() - since, 1),
            "reconnects": self.reconnects, "duplicates": self.duplicates, "paused": self._full}

    @property
    def full(self) -> bool:
        """Whether the log accepts nothing until Spark has finished some of it."""
        return self._full

    def _run(self, work: Callable[[], None]) -> None:
        """Runs a thread; an exception in it ends both."""
        try:
            work()
        except Exception as error:
            log.info("staging has ended: %s", error)     # the reader raises it
            self.error = self.error or self._with_folder(error)
        finally:
            self._stopping = True
            self.wake()
            with self.changed:
                self.changed.notify_all()

    def _with_folder(self, error: Exception) -> Exception:
        """Adds the folder to an error of the disk."""
        if not isinstance(error, OSError) or isinstance(error, ClientError):
            return error
        return StageError(f"stagingDir={self.options.stagingDir}: {error.strerror or error}; messages not in "
                          "it yet stay with nsqd")

    # ------------------------------------------------------------------ the thread of the connections

    def _receive(self) -> None:
        try:
            while not self._stopping:
                self._look_up()
                self._connect()
                self._check_reachable()
                self._update_ready()
                self._read(self._next_event())
                self._finish()
                self._hand_over()
        finally:
            self._leave()

    def _next_event(self) -> list[Peer[Connection]]:
        """Waits for data, a wakeup, or the linger time; returns the peers with data."""
        now = time.monotonic()
        wait = TICK_SECONDS
        if self._since and not self._loads:     # otherwise the writer wakes this thread
            wait = max(self._since + self.options.lingerMs / 1000 - now, 0)
        if self._unreachable_since is not None and self.options.failWhenUnreachable:
            wait = min(wait, max(self._unreachable_since + self.options.failWhenUnreachable - now, 0.01))
        wait = min(wait, max(self._peers.next_try - now, 0), max(self._peers.next_lookup - now, 0.01))
        events = self._selector.select(wait)
        self._waker.calm()
        return [key.data for key, _ in events if key.data is not None]

    def _read(self, peers: list[Peer[Connection]]) -> None:
        """Reads available data, unless the writer lags too far."""
        collected = sum(connection.inflow.bytes for _, connection in self._peers.connected)
        if collected >= HAND_OVER_BYTES and self._loads:
            time.sleep(0.001)
            return
        for peer in peers:
            connection = peer.connection
            if connection is None:
                continue
            try:
                rows = connection.pull()
                connection.flush()
            except (ConnectError, Refused) as error:
                self._lost(peer, connection, error)
                continue
            if rows and not self._since:
                self._since = time.monotonic()
            if rows and (not self._drain_ns or connection.inflow.oldest <= self._drain_ns):
                self._last_old = time.monotonic()
            self._suspect_failed(connection)

    def _suspect_failed(self, connection: Connection) -> None:
        """A message whose FIN failed was delivered to another consumer, or will be redelivered."""
        if connection.failed_ids:
            self._redeliveries.suspect(connection.address, b"".join(connection.failed_ids))
            connection.failed_ids.clear()

    def _finish(self) -> None:
        """Sends FIN for rows synced by the writer."""
        while self._done:
            source, ids = self._done.popleft()
            peer = next((peer for peer, connection in self._peers.connected if connection is source), None)
            if peer is not None:
                try:
                    source.finish_ids(ids)
                except ConnectError as error:
                    self._lost(peer, source, error)
        for peer, connection in self._peers.connected:
            if connection.unsent:
                try:
                    connection.flush()
                except ConnectError as error:
                    self._lost(peer, connection, error)

    def _hand_over(self) -> None:
        """Passes the collected messages to the writer: after the linger time, or earlier if there are many."""
        if not self._since or self._loads:
            return
        is_late = time.monotonic() - self._since >= self.options.lingerMs / 1000
        sources = [connection for _, connection in self._peers.connected if connection.inflow.rows]
        are_many = any(source.inflow.rows >= self._window(source) // 2 or source.inflow.bytes >= HAND_OVER_BYTES
                       for source in sources)
        if sources and (is_late or are_many):
            with self._loaded:
                self._loads.append([Load(source, source.inflow.columns()) for source in sources])
                self._loaded.notify()
            self._since = 0.0
        elif not sources:
            self._since = 0.0

    def _window(self, connection: Connection) -> int:
        return max(min(self.options.maxInFlight, connection.max_ready), 1)

    def _update_ready(self) -> None:
        """RDY 0 while the log is full, the whole window otherwise."""
        used = self.stage.live_bytes
        limit = self.options.maxStagedBytes
        if self._full and used <= limit * 3 // 4:
            self._full = False
            self._last_old = time.monotonic()
            log.info("staging resumes: %d of %d bytes are in use", used, limit)
        elif not self._full and used >= limit:
            self._full = True
            log.warning("staging pauses: %d of %d bytes are in use (maxStagedBytes)", used, limit)
        for peer, connection in self._peers.connected:
            ready = 0 if self._full else self._window(connection)
            if peer.ready != ready:
                try:
                    connection.ready(ready)
                    peer.ready = ready
                except ConnectError as error:
                    self._lost(peer, connection, error)

    # ------------------------------------------------------------------ connections

    def _look_up(self) -> None:
        """Queries nsqlookupd every lookupInterval. Raises LookupFailed if the first lookup fails."""
        now = time.monotonic()
        if not self._peers.look_up_due(now):
            return
        try:
            addresses = lookup(self.options.topic, self._peers.nsqlookupd, self.options.timeout)
        except LookupFailed as error:
            if not self._peers.looked_up:
                raise
            log.warning("%s; continuing with the known nsqd", error)
            self._peers.asked(now)
            return
        # Before asked(): all_tried must not be true of the peers known until now.
        self._peers.found(addresses)
        self._peers.asked(time.monotonic())

    def _connect(self) -> None:
        for peer in self._peers.due(time.monotonic()):
            if self._stopping:
                return
            try:
                connection = connect(peer.address, self.options, tick_ns=1000,
                                     topology_zone=self.options.topologyZone,
                                     topology_region=self.options.topologyRegion)
                try:
                    connection.subscribe(self.options.topic, self.options.channel)
                except BaseException:
                    connection.close()
                    raise
            except Refused as error:
                raise mistakes.of_nsqd(error, peer.address, self.options) or error from None
            except ConnectError as error:
                self._peers.failed(peer, error, time.monotonic())
                continue
            self._last_old = time.monotonic()   # before drained() can see the connection
            self.reconnects += peer.was_connected
            self._redeliveries.connected(connection, self._window(connection))
            peer.connected(connection)
            peer.failures = 0
            self._selector.register(connection, selectors.EVENT_READ, peer)

    def _check_reachable(self) -> None:
        """Raises Unreachable if there was no connection for failWhenUnreachable."""
        if self._peers.connected:
            self._unreachable_since = None
            return
        now = time.monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
        limit = self.options.failWhenUnreachable
        if limit and now - self._unreachable_since >= limit:
            raise Unreachable(f"no nsqd could be reached for {limit:g} s (failWhenUnreachable): {self.down_text()}")

    def _lost(self, peer: Peer[Connection], connection: Connection, error: Exception) -> None:
        """Drops a connection: nsqd redelivers its messages. Raises Refused and OptionError: retrying would not
        help."""
        if isinstance(error, Refused):
            raise mistakes.of_nsqd(error, peer.address, self.options) or error
        self._selector.unregister(connection)
        self._suspect_failed(connection)
        connection.close()
        self._redeliveries.lost(connection)
        self._peers.failed(peer, error, time.monotonic())

    def _leave(self) -> None:
        """Finishes messages that the writer has synced or is syncing, and requeues everything else."""
        with self._loaded:
            self._complete = True
            self._loaded.notify_all()
        deadline = time.monotonic() + STOP_SECONDS / 2
        while (self._writing or self._loads) and not self.error and time.monotonic() < deadline:
            time.sleep(0.002)
        try:
            self._finish()
        except Refused as error:
            log.warning("%s", error)
        for peer, connection in self._peers.connected:
            connection.leave()
            peer.connection = None
        self._selector.close()

    # ------------------------------------------------------------------ the thread of the disk

    def _write(self) -> None:
        while True:
            with self._loaded:
                while not self._loads and not self._complete:
                    self._loaded.wait(TICK_SECONDS)
                if not self._loads:
                    return
                self._writing = True
                loads = self._loads.popleft()
            self.wake()
            finished = [self._append(load) for load in loads]
            self.stage.sync()
            self._done.extend(finished)
            self._writing = False
            self.wake()
            with self.changed:
                self.changed.notify_all()

    def _append(self, load: Load) -> tuple[Connection, Ids]:
        """Appends one connection's messages to the log, except redeliveries; returns the ids to finish."""
        ids = load.columns[5]
        address = load.connection.address
        fresh = self._redeliveries.fresh(address, ids)
        batch = to_arrow(load.columns)
        known = fresh.count(0)
        if known:
            self.duplicates += known
            log.info("%s: %d messages were redelivered and are already in the log", address, known)
            batch = batch.filter(pa.array([flag == 1 for flag in fresh]))
        if batch.num_rows:
            self.stage.append(address, batch)
        self._redeliveries.staged(load.connection, ids)
        return load.connection, ids


def to_arrow(collected: Columns) -> pa.RecordBatch:
    """The columns of Inflow as the log stores them."""
    count, bodies, offsets, times, attempts, ids = collected
    return pa.RecordBatch.from_arrays([
        columns.bodies(offsets, bodies, count),
        columns.ids(ids, count),
        columns.fixed(columns.TIMESTAMP, times, count),
        columns.fixed(pa.int32(), attempts, count),
    ], schema=frames.STORED)
