"""Archives a feed: messages are collected, written and synced on threads, and only then finished."""

from __future__ import annotations

import errno
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from nsqc.client.connection import Dialer
from nsqc.client.errors import BadName
from nsqc.client.options import Options
from nsqc.client.peers import Backoff
from nsqc.tools.cluster import Cluster
from nsqc.tools.declare import EXIT_FAILED
from nsqc.tools.feed import Feed, check_topics
from nsqc.tools.lines import Piece
from nsqc.tools.running import Stop
from nsqc.tools.tofile.archive import PIECE_BYTES, Archive, Rules

if TYPE_CHECKING:
    from nsqc.tools.feed import Delivery, Source


# ====================================================================== worker
# Two threads for the disk: one writes rounds of messages, the other syncs written ones meanwhile.

class Round(NamedTuple):
    """One round of writing: deliveries by topic. close: all files, afterwards. begun: time.monotonic()."""

    deliveries: dict[str, list[Delivery]]
    close: bool
    begun: float


class Outcome(NamedTuple):
    """Deliveries of a topic that were synced, or the error that prevented it."""

    topic: str
    deliveries: list[Delivery]
    begun: float
    error: OSError | None


class Written(NamedTuple):
    """A pending sync. epoch: of Archive.store()."""

    topic: str
    deliveries: list[Delivery]
    begun: float
    archive: Archive
    epoch: int


class Worker:
    """done: called on one of the threads when a round is written, and when something is finished. finished: taken by
    the owner."""

    def __init__(self, archive_of: Callable[[str], Archive], done: Callable[[], None]):
        self._archive_of, self._done = archive_of, done
        self._archives: dict[str, Archive] = {}     # of the writing thread
        self._given, self._to_sync = threading.Semaphore(0), threading.Semaphore(0)
        self._round: Round | None = None
        self._written: deque[Written] = deque()
        self._under_way = 0             # unwritten rounds, and pending syncs
        self._count = threading.Lock()
        self.finished: deque[Outcome] = deque()
        for work in (self._write_rounds, self._sync_written):
            threading.Thread(target=work, daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether it accepts no round now."""
        return self._round is not None

    @property
    def is_idle(self) -> bool:
        """Whether all work is in `finished`."""
        return not self._under_way

    def begin(self, work: Round) -> None:
        """Starts a round; only if it is not busy."""
        self._add(1)
        self._round = work
        self._given.release()

    def _add(self, count: int) -> None:
        with self._count:
            self._under_way += count

    # ------------------------------------------------------------------ writing

    def _write_rounds(self) -> None:
        while True:
            self._given.acquire()
            for archive in list(self._archives.values()):
                archive.mend()
            work = self._round
            if work is None:
                continue        # only to mend
            for topic in {*work.deliveries, *self._archives}:
                self._write(topic, work)
            self._round = None
            self._add(-1)
            self._to_sync.release()
            self._done()

    def _write(self, topic: str, work: Round) -> None:
        deliveries = work.deliveries.get(topic, [])
        try:
            archive = self._archives.get(topic)
            if archive is None:
                archive = self._archives[topic] = self._archive_of(topic)
            epoch = archive.store(delivery.batch for delivery in deliveries) if deliveries else 0
            if work.close:
                archive.close()
            elif not deliveries:
                archive.tick()
        except (OSError, MemoryError) as error:
            self.finished.append(Outcome(topic, deliveries, work.begun, as_os_error(error)))
            return
        if deliveries:
            self._add(1)
            self._written.append(Written(topic, deliveries, work.begun, archive, epoch))

    # ------------------------------------------------------------------ syncing

    def _sync_written(self) -> None:
        while True:
            self._to_sync.acquire()
            # One sync for everything written to a file during the previous one.
            groups: dict[Archive, list[Written]] = {}
            while self._written:
                written = self._written.popleft()
                groups.setdefault(written.archive, []).append(written)
            for archive, parts in groups.items():
                self._sync(archive, parts)
                self._done()

    def _sync(self, archive: Archive, parts: list[Written]) -> None:
        for part in parts:
            error: OSError | None = None
            try:
                archive.sync(part.epoch)
            except OSError as failure:
                error = failure
                self._given.release()       # the writing thread mends it
            self.finished.append(Outcome(part.topic, part.deliveries, part.begun, error))
            self._add(-1)


def as_os_error(error: OSError | MemoryError) -> OSError:
    """Converts the error, with a text for the user."""
    return error if isinstance(error, OSError) else OSError(errno.ENOMEM, "out of memory")


# ====================================================================== topics
# Finds topics by a pattern: queries nsqlookupd at intervals, on a thread.

class Discovery:
    """found() returns new topics once. interval: seconds between two lists."""

    def __init__(self, cluster: Cluster, pattern: re.Pattern[str], interval: float,
                 warn: Callable[[str], None], wake: Callable[[], None]):
        self._cluster, self._pattern, self._interval, self._warn = cluster, pattern, interval, warn
        self._dialer: Dialer[None, list[str]] = Dialer(wake)
        self._next = 0.0

    def found(self) -> list[str]:
        """Topics of the last list; requests the next one when due."""
        names: list[str] = []
        for _, outcome in self._dialer.finished():
            if isinstance(outcome, Exception):
                self._warn(str(outcome))
            else:
                names = [name for name in outcome if self._pattern.search(name)]
        if time.monotonic() >= self._next and self._dialer.start(None, self._cluster.topic_names):
            self._next = time.monotonic() + self._interval
        return names


# ====================================================================== engine

PAUSE = Backoff(0.5, 30.0)
TRIAL_FACTOR = 4
ENOUGH = 0.25           # fraction of the messages in flight that starts a round; the rest arrives during it
STARVED = 0.5           # of a connection's RDY: at this fraction a round begins as soon as nothing more arrives
STARVED_SECONDS = 0.005     # or after this, if others still receive
# Reports for the user: a level (info, warn or error), the topic concerned, empty if there is none, and a text.
Say: TypeAlias = Callable[[str, str, str], None]


class Engine:
    """sync_interval: maximum seconds before a message is synced."""

    def __init__(self, feed: Feed, stop: Stop, archive_of: Callable[[str], Archive], sync_interval: float,
                 say: Say):
        self._feed, self._stop, self._sync_interval, self._say = feed, stop, sync_interval, say
        self._worker = Worker(archive_of, stop.wake)
        self._pending: dict[str, list[Delivery]] = {}
        self._count = 0                     # messages in it
        self._counts: dict[Source, int] = {}        # by connection
        self._since = 0.0                   # since when it is not empty
        self._starved = 0.0                 # since when a connection needs answers to send more; 0: none
        self._is_quiet = False              # nothing arrived the last time
        self._last = time.monotonic()       # start of the last round
        self._hangups = 0
        self._failures = 0                  # since the last full recovery
        self._is_failing = False            # nothing stored since the last failure
        self._failed = 0.0                  # time of the last failure
        self._resume = 0.0                  # after a failure: time of the retry
        self._told: set[str] = set()        # topics of the last failure
        self._trial = 0                     # limit of messages in flight after it
        self.stored = 0                     # messages synced and finished

    def run(self) -> int:
        """Runs until a signal. Returns the exit code: 1 if files could not be written at the end. Raises ClientError,
        ToolError."""
        while not self._stop:
            self._take(self._feed.receive(self._patience()))
            self._settle()
            if not self._worker.is_busy and self._is_due():
                self._begin(close=self._hung_up)
        return self._last_round()

    def _patience(self) -> float:
        """Seconds until something is due."""
        if self._worker.is_busy:
            return 1.0
        if self._starved:
            return 0.0
        due = max((self._since if self._count else self._last) + self._sync_interval, self._resume)
        return max(0.001, min(due - time.monotonic(), 1.0))

    def _take(self, deliveries: list[Delivery]) -> None:
        self._is_quiet = not deliveries
        for delivery in deliveries:
            if self._resume:
                self._feed.requeue(delivery)    # it arrived while a file could not be written
                continue
            if not self._count:
                self._since = time.monotonic()
            self._pending.setdefault(delivery.topic, []).append(delivery)
            self._count += delivery.count
            source = delivery.source
            self._counts[source] = self._counts.get(source, 0) + delivery.count
            if not self._starved and self._counts[source] >= source.peer.ready * STARVED:
                self._starved = time.monotonic()

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now < self._resume:
            return False
        if self._failures and self._resume:
            self._resume, self._trial = 0.0, 1
            self._feed.limit(1)
        if not self._count:
            return now - self._last >= self._sync_interval or self._hung_up
        return (self._count >= self._feed.in_flight * len(self._feed.topics) * ENOUGH
                or (self._starved > 0 and (self._is_quiet or now - self._starved >= STARVED_SECONDS))
                or now - self._since >= self._sync_interval or self._hung_up)

    @property
    def _hung_up(self) -> bool:
        return self._stop.hangups > self._hangups

    def _begin(self, close: bool) -> None:
        self._hangups = self._stop.hangups
        # nsqd redelivers the messages of connections lost since.
        pending = {topic: [one for one in deliveries if self._feed.is_live(one)]
                   for topic, deliveries in self._pending.items()}
        self._forget()
        for topic, deliveries in pending.items():
            self._say("info", topic, f"syncing {sum(one.count for one in deliveries)} records to disk")
        self._last = time.monotonic()
        self._worker.begin(Round(pending, close, self._last))

    def _forget(self) -> None:
        self._pending, self._counts, self._count, self._starved = {}, {}, 0, 0.0

    def _settle(self) -> None:
        """Answers messages that were synced, or failed to be."""
        while self._worker.finished:
            self._answer(self._worker.finished.popleft())

    def _answer(self, outcome: Outcome) -> None:
        for delivery in outcome.deliveries:
            if outcome.error is not None:
                self._feed.requeue(delivery)
            else:
                self._feed.finish(delivery)
                self.stored += delivery.count
        if outcome.error is not None:
            self._pause(outcome.topic, outcome.error, outcome.begun)
        elif self._failures and outcome.deliveries and outcome.begun > self._failed:
            self._is_failing = False
            self._try_more()

    def _try_more(self) -> None:
        """A store succeeded after a failure: raises the limit step by step, because there may be little room."""
        self._trial *= TRIAL_FACTOR
        if self._trial < self._feed.max_in_flight:
            self._feed.limit(self._trial)
        else:
            self._failures = 0
            self._feed.limit(None)

    def _pause(self, topic: str, error: OSError, begun: float) -> None:
        """Takes no messages for a while; requeues held ones, for consumers elsewhere."""
        if begun <= self._failed:   # it was in progress when another failed
            if topic not in self._told:
                self._tell(topic, error, PAUSE.pause(self._failures))
            return
        self._failures += 1
        self._is_failing = True
        pause = PAUSE.pause(self._failures)
        self._failed = time.monotonic()
        self._told.clear()
        self._resume = self._failed + pause
        self._feed.limit(0)
        for deliveries in self._pending.values():
            for delivery in deliveries:
                self._feed.requeue(delivery)
        self._forget()
        self._tell(topic, error, pause)

    def _tell(self, topic: str, error: OSError, pause: float) -> None:
        self._told.add(topic)
        self._say("error", topic, f"{reason(error)}; no message of it finished, retrying in {pause:g} s")

    def _last_round(self) -> int:
        """Stores the messages received, and closes the files."""
        self._feed.limit(0)
        while self._worker.is_busy:
            self._take(self._feed.receive(0.2))
            self._settle()
        self._begin(close=True)
        while not self._worker.is_idle:
            self._feed.receive(0.2)     # later arrivals are requeued at the end
            self._settle()
        self._settle()
        return EXIT_FAILED if self._is_failing else 0


def reason(error: OSError) -> str:
    """An error as text, with the file."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)


# ====================================================================== running
# One run of `nsqc to-file` or nsq_to_file, from its plan.

MOST_CONNECTIONS = 8


class Plan(NamedTuple):
    """The job; times in seconds. pattern: topics to look for, or None."""

    place: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    refresh: float
    channel: str
    rules: Rules
    sync_interval: float
    max_in_flight: int
    connections: int        # to each nsqd per topic; 0: automatic
    wait: bool


def archive(cluster: Cluster, plan: Plan, say: Say, insists: bool = True) -> int:
    """Returns the exit code. insists: see Feed. Raises ClientError, ToolError."""
    options = Options("to-file", (), cluster.timeout, cluster.connection_options())
    if not plan.connections:
        plan = plan._replace(connections=good_connections(cluster, plan))
    if not plan.wait:
        check_topics(cluster, plan.topics)
    piece = Piece(PIECE_BYTES)

    def archive_of(topic: str) -> Archive:
        return Archive(topic, plan.rules, lambda level, text: say(level, topic, text), piece)

    with Stop() as stop:
        stop.hear_hangup()
        with DiscoveringFeed(cluster, plan, options, stop, partial(say, "warn", ""), insists) as feed:
            feed.start()
            code = Engine(feed, stop, archive_of, plan.sync_interval, say).run()
            return code or stop.code(terminated=0)


def good_connections(cluster: Cluster, plan: Plan) -> int:
    """nsqd limits messages in flight per connection, and those limit the amount per sync."""
    if cluster.nsqlookupd:
        return 2
    return max(1, MOST_CONNECTIONS // (len(cluster.nsqd) * max(len(plan.topics), 1)))


class DiscoveringFeed(Feed):
    """A feed that adds topics as they appear."""

    def __init__(self, cluster: Cluster, plan: Plan, options: Options, stop: Stop, warn: Callable[[str], None],
                 insists: bool):
        super().__init__(cluster, plan.topics, plan.channel, plan.max_in_flight, options, stop, warn, plan.connections,
                         insists)
        self._discovery = (Discovery(cluster, plan.pattern, plan.refresh, warn, stop.wake) if plan.pattern is not None
                           else None)

    def _tend(self, now: float) -> None:
        if self._discovery is not None:
            for topic in self._discovery.found():
                try:
                    self.add(topic)
                except BadName as error:
                    self._say(str(error))
        super()._tend(now)
