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
from typing import Any, NamedTuple, TypedDict
from urllib.parse import quote

import pyarrow as pa

from nsqc.client import ClientError, ConnectError, Connection, LookupFailed, Refused, lookup
from nsqc.client.address import join_address, split_address
from nsqc.client.commands import Columns, Ids
from nsqc.client.connection import Waker
from nsqc.client.lookup import fetch
from nsqc.client.peers import Backoff, Peer, Peers
from nsqc.spark import columns, mistakes, stagelog
from nsqc.spark.arrow import RecentIds
from nsqc.spark.columns import ID_BYTES
from nsqc.spark.connect import connect
from nsqc.spark.options import Stream
from nsqc.spark.stagelog import StageError, StageLog
from nsqc.wire.outside import decode

# ====================================================================== redelivery
# Recognises messages already in the staging log.
#
# nsqd redelivers a message if its FIN is lost, late, or fails. Two bounded sets of ids recognise that: the last staged
# ids, which suffice while deliveries come in order, and suspects, whose FIN may not have reached nsqd. An nsqd that
# sends a message has seen the FIN of the message one RDY window before it; so when a connection breaks, the ids of its
# last two windows become suspects.

RECENT_IDS = 1 << 20
SUSPECT_IDS = 1 << 20


class Window:
    """The last ids delivered by a connection, at least `rows` of them."""

    def __init__(self, rows: int):
        self.ids: deque[Ids] = deque()
        self._keep = rows
        self._rows = 0

    def add(self, ids: Ids) -> None:
        """Adds ids and drops the oldest unneeded ones."""
        self.ids.append(ids)
        self._rows += len(ids) // ID_BYTES
        while self._rows - len(self.ids[0]) // ID_BYTES >= self._keep:
            self._rows -= len(self.ids.popleft()) // ID_BYTES


class Redeliveries:
    """Thread-safe: one thread has the connections, another one stages."""

    def __init__(self) -> None:
        self._recent = RecentIds(RECENT_IDS)
        self._suspects = RecentIds(SUSPECT_IDS)
        self._numbers: dict[str, int] = {}              # of nsqd by address: ids are unique only within one nsqd
        self._windows: dict[Connection, Window] = {}
        self._mutex = threading.RLock()

    def connected(self, connection: Connection, window: int) -> None:
        """Tracks a connection; window: its RDY."""
        with self._mutex:
            self._windows[connection] = Window(2 * window)

    def lost(self, connection: Connection) -> None:
        """The FINs of its last messages may not have arrived."""
        with self._mutex:
            window = self._windows.pop(connection, None)
            for ids in window.ids if window is not None else ():
                self.suspect(connection.address, ids)

    def suspect(self, address: str, ids: Ids) -> None:
        """These ids of an nsqd are staged, but nsqd may redeliver them."""
        self._suspects.remember(ids, self._number(address))

    def fresh(self, address: str, ids: Ids) -> bytearray:
        """A byte for each id: 1 if it was never staged. The ids count as staged from now on."""
        number = self._number(address)
        fresh = self._recent.remember(ids, number)
        if len(self._suspects):
            known = self._suspects.known(ids, number)
            if any(known):
                return bytearray(new and not suspect for new, suspect in zip(fresh, known, strict=True))
        return fresh

    def staged(self, connection: Connection, ids: Ids) -> None:
        """A batch of the connection is about to be synced and finished."""
        with self._mutex:
            window = self._windows.get(connection)
            if window is None:      # lost meanwhile
                self.suspect(connection.address, ids)
            else:
                window.add(ids)

    def _number(self, address: str) -> int:
        with self._mutex:
            return self._numbers.setdefault(address, len(self._numbers))


# ====================================================================== stream metrics
# The metrics of the nsq sources of a query, read from Spark's own progress. Knows no Spark.
#
# PySpark gives a Python source no place for metrics: sources[].metrics is filled for Java sources only. A source's
# latest offset appears unchanged in each StreamingQueryProgress, and is neither compared nor checkpointed: so the
# metrics are in sources[].latestOffset["metrics"].

class ConsumerMetrics(TypedDict):
    """The stager's metrics; docs/spark.md describes each."""

    depth: int | None
    nsqdUp: int
    nsqdDown: dict[str, str]
    unreachableSeconds: float
    reconnects: int
    duplicates: int
    paused: bool


class StreamMetrics(ConsumerMetrics):
    """All metrics of a source."""

    source: str
    backlog: int
    backlogBytes: int
    oldestAgeSeconds: float | None


# Any: a StreamingQuery or StreamingQueryProgress of classic or Connect sessions, which share no base; or JSON
def metrics(of: Any) -> list[StreamMetrics]:
    """of: a StreamingQuery, a StreamingQueryProgress, or such a progress as a dict or JSON. One dict per nsq source;
    none before the first progress."""
    progress = of
    if hasattr(of, "lastProgress"):
        progress = of.lastProgress
    if hasattr(progress, "json"):
        progress = progress.json
    if callable(progress):
        progress = progress()
    if isinstance(progress, str):
        progress = decode(progress)
    sources = []
    for source in (progress or {}).get("sources", ()):
        latest = source.get("latestOffset")
        if isinstance(latest, str):
            latest = decode(latest)
        if isinstance(latest, dict) and "metrics" in latest and ("log" in latest or "joined" in latest):
            sources.append(latest["metrics"])
    return sources


# ====================================================================== channel depth
# A channel's depth in its nsqd: polled over HTTP by a thread.
#
# For metrics only. If the HTTP port is unknown or does not answer, there is no metric and no error.

POLL_SECONDS = 5.0
TIMEOUT = 2.0
MOST_BYTES = 16 << 20


class ChannelDepth:
    """The depth of a stream's channel, plus the topic's own queue if the channel is new."""

    def __init__(self, options: Stream):
        self._options = options
        self._latest: int | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nsq-depth", daemon=True)

    def start(self) -> None:
        """Starts polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stops polling; does not wait for an answer. Idempotent."""
        self._stopped.set()

    def latest(self) -> int | None:
        """Messages queued at the last poll, on the nsqd that answered; None if none did."""
        return self._latest

    def _run(self) -> None:
        while not self._stopped.is_set():
            depths = [depth for address in self._addresses() if (depth := self._poll(address)) is not None]
            self._latest = sum(depths) if depths else None
            self._stopped.wait(POLL_SECONDS)

    def _addresses(self) -> list[str]:
        """HTTP addresses: given ones, those reported by nsqlookupd, or the port after TCP's if it belongs to the same
        nsqd."""
        options = self._options
        if options.http:
            return list(options.http)
        addresses: dict[str, None] = {}
        for address in options.nsqlookupd:
            answer = get(address, f"/lookup?topic={quote(options.topic, safe='')}") or {}
            for node in answer.get("producers") or ():
                addresses[f"{node.get('broadcast_address')}:{node.get('http_port')}"] = None
        for address in options.nsqd:
            host, port = split_address(address)
            guess = join_address(host, port + 1)
            if (get(guess, "/info", options.http_secret(guess)) or {}).get("tcp_port") == port:
                addresses[guess] = None
        return list(addresses)

    def _poll(self, address: str) -> int | None:
        options = self._options
        stats = get(address, f"/stats?format=json&include_clients=false&topic={quote(options.topic, safe='')}",
                    options.authSecret if address in options.http else options.http_secret(address))
        if stats is None:
            return None
        total = 0
        for topic in stats.get("topics") or ():
            total += topic["depth"] + sum(channel["depth"] for channel in topic["channels"] or ()
                                          if channel["channel_name"] == options.channel)
        return total


# Any: JSON
def get(address: str, path: str, secret: str | None = None) -> dict[str, Any] | None:
    """A JSON object over HTTP; None for any other answer."""
    try:
        status, body = fetch(address, path, TIMEOUT, MOST_BYTES, secret=secret)
        answer = decode(body) if status == 200 else None
    except (OSError, ValueError):
        return None
    return (answer.get("data") or answer) if isinstance(answer, dict) else None


# ====================================================================== stager

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
    ], schema=stagelog.STORED)
