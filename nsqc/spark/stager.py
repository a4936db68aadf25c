"""Messages from nsqd into the staging log, and only then FIN. Two threads: one has all connections, one has the disk.

    connections ──batches──▶ writer: drop what is known, append, fdatasync ──ids──▶ connections: FIN

The writer takes the next batch when it is done with one, so that a sync carries what came during the one before it.
Back-pressure: RDY 0 while the log is full, and no reading while the writer is behind. Knows no Spark.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa

from nsqc.spark import columns, frames, link
from nsqc.spark.depth import Depth
from nsqc.spark.options import Stream
from nsqc.spark.seen import Seen
from nsqc.spark.stagelog import StageError, StageLog

log = logging.getLogger("nsqc.spark")

RECENT_IDS = 1 << 20        # remembered while they come in order
SUSPECT_IDS = 1 << 20       # remembered because their FIN may not have arrived
HAND_OVER_BYTES = 4 << 20   # of messages that do not wait for the linger time
TICK_SECONDS = 1.0
LONGEST_PAUSE = 15.0        # between tries to connect
STOP_SECONDS = 10.0


# What a source says before it has begun to consume.
IDLE = {"depth": None, "nsqdUp": 0, "nsqdDown": {}, "unreachableSeconds": 0.0, "reconnects": 0, "duplicates": 0,
        "paused": False}


class Unreachable(RuntimeError):
    """No nsqd could be reached for too long."""


class Load(NamedTuple):
    """What one connection has collected: made into a frame by the writer. columns: as Inflow.columns() gives them."""

    link: link.Connection
    columns: tuple


class Peer:
    """One place for a connection to one nsqd: connected, or waiting for the next try."""

    def __init__(self, address: str):
        self.address = address
        self.link: link.Connection | None = None
        self.failures = 0
        self.was_up = False
        self.error = ""                         # why it is not connected
        self.next_try = 0.0
        self.ready = 0                          # the RDY that was sent last
        self.recent: deque[Any] = deque()       # ids delivered last: FIN may not have arrived for these
        self.recent_rows = 0


class Stager:
    """Consumes a topic into a log from start() on; stop() hands back what is not in the log."""

    def __init__(self, options: Stream, stage: StageLog):
        self.options = options
        self.stage = stage
        self.error: Exception | None = None     # what ended it
        self.duplicates = 0                     # messages that were not staged again
        self.reconnects = 0                     # connections that were lost and stand again
        self.depth = Depth(options)
        self._alone_since: float | None = None  # when the last connection was lost, or none came to stand
        self.changed = threading.Condition()    # rows were synced, or it has ended
        self._recent = Seen(RECENT_IDS)
        self._suspects = Seen(SUSPECT_IDS)
        self._node_numbers: dict[str, int] = {}
        self._peers: list[Peer] = []
        self._peer_mutex = threading.Lock()     # of what _note_recent and _lost both change
        self._looked = float("-inf")
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._loads: deque[list[Load]] = deque()    # for the writer; at most one waits
        self._loaded = threading.Condition()
        self._writing = False
        self._done: deque[tuple[link.Connection, Any]] = deque()      # ids to finish
        self._stopping = False
        self._complete = False                  # nothing more will be handed to the writer
        self._since = 0.0                       # when the oldest message that waits for the linger time came
        self._full = False
        self._drain_ns = 0                      # messages that are newer are none that a drain waits for
        self._last_old = time.monotonic()       # when such a message came last, or it was made ready to
        self._remember_log()
        self._threads = [threading.Thread(target=self._run, args=(work,), name=f"nsq-{name}", daemon=True)
                         for name, work in (("receive", self._receive), ("write", self._write))]

    def start(self) -> None:
        """Connects and consumes in the background."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._last_old = time.monotonic()
        for thread in self._threads:
            thread.start()
        self.depth.start()

    def stop(self) -> None:
        """Finishes what is in the log, hands the rest back to nsqd, and ends. Idempotent."""
        self._stopping = True
        self.depth.stop()
        self.wake()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(STOP_SECONDS)

    def wake(self) -> None:
        """Has the connections looked at now: room may have come up in the log."""
        with suppress(BlockingIOError):
            os.write(self._wake_write, b"x")

    def drain_from_now(self) -> None:
        """From now on, drained() counts only messages that nsqd has already."""
        self._drain_ns = time.time_ns()
        self._last_old = time.monotonic()

    def drained(self) -> bool:
        """Whether, for the idle time, nsqd has delivered nothing that it had at drain_from_now(), while it could."""
        # In the order in which messages pass: what has left one of these is in the next already.
        if (self._since or self._loads or self._writing or self._full or not self._looked_everywhere()
                or self.unreachable()):
            return False
        return time.monotonic() - self._last_old >= self.options.idleMs / 1000

    def unreachable(self) -> str | None:
        """Why nothing can come: no connection at all stands, and all have been tried. None: something may come."""
        if any(peer.link for peer in self._peers) or not self._looked_everywhere() or not self._peers:
            return None
        return ", ".join(sorted({peer.address for peer in self._peers}))

    def down_text(self) -> str:
        """Which nsqd are down and why."""
        down = self.down()
        if not down:
            return f"nsqlookupd knows no nsqd that has topic {self.options.topic}"
        return "; ".join(text if address in text else f"{address}: {text}" for address, text in sorted(down.items()))

    def down(self) -> dict[str, str]:
        """The nsqd that no connection stands to, and why."""
        peers = list(self._peers)
        up = {peer.address for peer in peers if peer.link is not None}
        return {peer.address: peer.error for peer in peers if peer.error and peer.address not in up}

    def metrics(self) -> dict[str, Any]:
        """How consuming goes, for the query's progress."""
        peers, alone = list(self._peers), self._alone_since
        return IDLE | {
            "depth": self.depth.known(), "nsqdUp": len({peer.address for peer in peers if peer.link is not None}),
            "nsqdDown": self.down(), "reconnects": self.reconnects, "duplicates": self.duplicates,
            "unreachableSeconds": 0.0 if alone is None else round(time.monotonic() - alone, 1), "paused": self._full}

    @property
    def full(self) -> bool:
        """Whether the log takes no more until Spark is done with some of it."""
        return self._full

    def _looked_everywhere(self) -> bool:
        return self._looked > float("-inf") and all(peer.link or peer.failures for peer in self._peers)

    def _run(self, work: Any) -> None:
        """A thread's life: what it raises ends both."""
        try:
            work()
        except Exception as error:
            log.info("staging has ended: %s", error)     # whoever asks for rows gets it raised
            self.error = self.error or self._placed(error)
        finally:
            self._stopping = True
            self.wake()
            with self.changed:
                self.changed.notify_all()

    def _placed(self, error: Exception) -> Exception:
        """With the folder, where it was the disk's."""
        if not isinstance(error, OSError) or isinstance(error, link.ClientError):
            return error
        return StageError(f"stagingDir={self.options.stagingDir}: {error.strerror or error}; what is not in it yet "
                          "stays with nsqd")

    # ------------------------------------------------------------------ the thread of the connections

    def _receive(self) -> None:
        try:
            while not self._stopping:
                self._look_up()
                self._connect()
                self._refuse_solitude()
                self._flow()
                self._take_in(self._next_event())
                self._finish()
                self._hand_over()
        finally:
            self._leave()

    def _next_event(self) -> list[Any]:
        """Waits for data, a wake-up, or the linger time; what has data."""
        wait = TICK_SECONDS
        if self._since:
            wait = max(self._since + self.options.lingerMs / 1000 - time.monotonic(), 0)
            if self._loads:
                wait = TICK_SECONDS     # the writer wakes us
        if self._alone_since is not None and self.options.failWhenUnreachable:
            wait = min(wait, max(self._alone_since + self.options.failWhenUnreachable - time.monotonic(), 0.01))
        due = [peer.next_try for peer in self._peers if peer.link is None]
        if due:
            wait = min(wait, max(min(due) - time.monotonic(), 0))
        if self.options.nsqlookupd:
            wait = min(wait, max(self._looked + self.options.lookupInterval - time.monotonic(), 0.01))
        events = [key for key, _ in self._selector.select(wait)]
        for key in events:
            if key.fileobj == self._wake_read:
                with suppress(BlockingIOError):
                    os.read(self._wake_read, 1 << 16)
        return [key.data for key in events if key.data is not None]

    def _take_in(self, peers: list[Peer]) -> None:
        """Reads what has come, unless the writer is far behind."""
        collected = sum(peer.link.inflow.bytes for peer in self._peers if peer.link)
        if collected >= HAND_OVER_BYTES and self._loads:
            time.sleep(0.001)
            return
        for peer in peers:
            try:
                rows = peer.link.pull()
                peer.link.flush()
            except (link.ConnectError, link.Refused) as error:
                self._lost(peer, error)
                continue
            if rows and not self._since:
                self._since = time.monotonic()
            if rows and (not self._drain_ns or peer.link.inflow.oldest <= self._drain_ns):
                self._last_old = time.monotonic()
            self._suspect_failed(peer)

    def _suspect_failed(self, peer: Peer) -> None:
        """What could not be finished was given to somebody, or will come again."""
        if peer.link.failed_ids:
            self._suspects.take(b"".join(peer.link.failed_ids), self._number(peer.address))
            peer.link.failed_ids.clear()

    def _finish(self) -> None:
        """FIN for what the writer has made safe."""
        while self._done:
            one, ids = self._done.popleft()
            peer = next((peer for peer in self._peers if peer.link is one), None)
            if peer is not None:
                try:
                    one.finish_ids(ids)
                except link.ConnectError as error:
                    self._lost(peer, error)
        for peer in self._peers:
            if peer.link is not None and peer.link.unsent:
                try:
                    peer.link.flush()
                except link.ConnectError as error:
                    self._lost(peer, error)

    def _hand_over(self, at_once: bool = False) -> None:
        """Gives the writer what has been collected: after the linger time, or where there is much of it."""
        if not self._since or self._loads:
            return
        late = time.monotonic() - self._since >= self.options.lingerMs / 1000
        links = [peer.link for peer in self._peers if peer.link and peer.link.inflow.rows]
        much = any(one.inflow.rows >= self._window(one) // 2 or one.inflow.bytes >= HAND_OVER_BYTES for one in links)
        if links and (late or much or at_once):
            with self._loaded:
                self._loads.append([Load(one, one.inflow.columns()) for one in links])
                self._loaded.notify()
            self._since = 0.0
        elif not links:
            self._since = 0.0

    def _window(self, one: link.Connection) -> int:
        return max(min(self.options.maxInFlight, one.max_ready), 1)

    def _flow(self) -> None:
        """RDY 0 while the log is full; full again or not."""
        used = self.stage.live_bytes
        limit = self.options.maxStagedBytes
        if self._full and used <= limit * 3 // 4:
            self._full = False
            self._last_old = time.monotonic()
            log.info("staging goes on: %d of %d bytes are in use", used, limit)
        elif not self._full and used >= limit:
            self._full = True
            log.warning("staging pauses: %d of %d bytes are in use (maxStagedBytes)", used, limit)
        for peer in self._peers:
            want = 0 if self._full else self._window(peer.link) if peer.link else 0
            if peer.link is not None and peer.ready != want:
                try:
                    peer.link.ready(want)
                    peer.ready = want
                except link.ConnectError as error:
                    self._lost(peer, error)

    # ------------------------------------------------------------------ connections

    def _look_up(self) -> None:
        """Which nsqd there are: asked again every lookupInterval; those that are gone are kept while they answer."""
        now = time.monotonic()
        if not self.options.nsqlookupd:
            if not self._peers:
                self._peers = [Peer(address) for address in self.options.nsqd for _ in range(self.options.connections)]
                self._looked = now
            return
        if now - self._looked < self.options.lookupInterval:
            return
        first = self._looked == float("-inf")
        try:
            known = link.lookup(self.options.topic, self.options.nsqlookupd, self.options.timeout)
        except link.LookupFailed as error:
            if first:
                raise
            log.warning("%s; going on with the nsqd that are known", error)
            self._looked = now
            return
        self._looked = time.monotonic()
        self._peers = [peer for peer in self._peers if peer.link is not None or peer.address in known]
        there = {peer.address for peer in self._peers}
        self._peers += [Peer(address) for address in known if address not in there
                        for _ in range(self.options.connections)]

    def _connect(self) -> None:
        """Tries what is due."""
        for peer in self._peers:
            if peer.link is not None or peer.next_try > time.monotonic() or self._stopping:
                continue
            try:
                one = link.connect(peer.address, self.options, tick_ns=1000)
                try:
                    one.subscribe(self.options.topic, self.options.channel)
                except BaseException:
                    one.close()
                    raise
            except link.ConnectError as error:
                self._wait(peer, error)
                continue
            self._last_old = time.monotonic()   # before drained() can see the connection
            if peer.was_up:
                self.reconnects += 1
            peer.link, peer.ready, peer.failures, peer.error, peer.was_up = one, 0, 0, "", True
            self._selector.register(one, selectors.EVENT_READ, peer)

    def _refuse_solitude(self) -> None:
        """Raises Unreachable where no connection stands, and has not for failWhenUnreachable."""
        if any(peer.link for peer in self._peers):
            self._alone_since = None
            return
        now = time.monotonic()
        if self._alone_since is None:
            self._alone_since = now
        limit = self.options.failWhenUnreachable
        if limit and now - self._alone_since >= limit:
            raise Unreachable(f"no nsqd could be reached for {limit:g} s (failWhenUnreachable): {self.down_text()}")

    def _wait(self, peer: Peer, error: Exception) -> None:
        """The next try comes after a pause that doubles."""
        peer.error = str(error)
        if not peer.failures:
            log.warning("consuming: %s; trying again", error)
        pause = min(max(self.options.backoff, 0.01) * 2 ** min(peer.failures, 20), LONGEST_PAUSE)
        peer.failures += 1
        peer.next_try = time.monotonic() + pause

    def _lost(self, peer: Peer, error: Exception) -> None:
        """Drops a connection: its messages come again, from wherever they are then."""
        if isinstance(error, link.Refused):
            raise error
        self._selector.unregister(peer.link)
        self._suspect_failed(peer)
        peer.link.close()
        with self._peer_mutex:
            peer.link = None
            for ids in peer.recent:
                self._suspects.take(ids, self._number(peer.address))
            peer.recent.clear()
            peer.recent_rows = 0
        self._wait(peer, error)

    def _leave(self) -> None:
        """What the writer has and what it still makes safe is finished, everything else handed back."""
        with self._loaded:
            self._complete = True
            self._loaded.notify_all()
        deadline = time.monotonic() + STOP_SECONDS / 2
        while (self._writing or self._loads) and not self.error and time.monotonic() < deadline:
            time.sleep(0.002)
        try:
            self._finish()
        except link.Refused as error:
            log.warning("%s", error)
        for peer in self._peers:
            if peer.link is not None:
                peer.link.leave()
                peer.link = None
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

    def _append(self, load: Load) -> tuple[link.Connection, Any]:
        """One connection's messages into the log, but for those that are there already; their ids."""
        ids = load.columns[5]
        address = load.link.address
        fresh = self._fresh(ids, self._number(address))
        batch = to_arrow(load.columns)
        known = fresh.count(0)
        if known:
            self.duplicates += known
            log.info("%s: %d messages came again and are in the log already", address, known)
            batch = batch.filter(pa.array([flag == 1 for flag in fresh]))
        if batch.num_rows:
            self.stage.append(address, batch)
        self._note_recent(load.link, ids, len(fresh))
        return load.link, ids

    def _fresh(self, ids: Any, number: int) -> bytearray:
        """A byte for each id: 1 where it was never staged."""
        fresh = self._recent.take(ids, number)
        if len(self._suspects):
            known = self._suspects.known(ids, number)
            if any(known):
                fresh = bytearray(flag and not twice for flag, twice in zip(fresh, known, strict=True))
        return fresh

    def _note_recent(self, one: link.Connection, ids: Any, rows: int) -> None:
        """Every message that nsqd sends shows that it has seen the FIN of the one a window before it."""
        with self._peer_mutex:
            peer = next((peer for peer in self._peers if peer.link is one), None)
            if peer is None:    # lost meanwhile
                self._suspects.take(ids, self._number(one.address))
                return
            peer.recent.append(ids)
            peer.recent_rows += rows
            keep = 2 * self._window(one)
            while peer.recent_rows - len(peer.recent[0]) // columns.ID_BYTES >= keep:
                peer.recent_rows -= len(peer.recent.popleft()) // columns.ID_BYTES

    def _number(self, address: str) -> int:
        return self._node_numbers.setdefault(address, len(self._node_numbers))

    def _remember_log(self) -> None:
        """What an earlier run has staged and may not have finished."""
        for address, batch in self.stage.newest(self.stage.keep_rows):
            column = batch.column(1)
            data = memoryview(column.buffers()[2]).cast("B")[:len(column) * columns.ID_BYTES]
            self._suspects.take(data, self._number(address))


def to_arrow(found: tuple) -> pa.RecordBatch:
    """The columns of Inflow as the log stores them."""
    count, bodies, offsets, times, attempts, ids = found
    return pa.RecordBatch.from_arrays([
        columns.bodies(offsets, bodies, count),
        columns.ids(ids, count),
        columns.fixed(columns.TIMESTAMP, times, count),
        columns.fixed(pa.int32(), attempts, count),
    ], schema=frames.STORED)
