"""From a feed to archives: messages are collected, written and synced on a thread, and only then finished."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from nsqc.client.backoff import Backoff
from nsqc.tools.errors import EXIT_FAILED

if TYPE_CHECKING:
    from nsqc.tools.feed import Delivery, Feed
    from nsqc.tools.stopping import Stop
    from nsqc.tools.tofile.archive import Archive

PAUSE = Backoff(0.5, 30.0)
ENOUGH = 0.5            # of what may be in flight: then a round begins; the rest arrives meanwhile


class Round:
    """What the thread does at a time: batches by topic. close: the files, too. errors: by topic, when it is done."""

    def __init__(self, deliveries: dict[str, list[Delivery]], close: bool):
        self.deliveries, self.close = deliveries, close
        self.errors: dict[str, OSError] = {}


class Worker:
    """One thread, one round at a time. done: wakes the owner."""

    def __init__(self, archive_of: Callable[[str], Archive], done: Callable[[], None]):
        self._archive_of, self._done = archive_of, done
        self._open: dict[str, Archive] = {}
        self._given = threading.Semaphore(0)
        self._round: Round | None = None
        self.finished: Round | None = None
        self.is_busy = False
        threading.Thread(target=self._run, daemon=True).start()

    def begin(self, work: Round) -> None:
        """Only if it is not busy, and `finished` was taken."""
        self.is_busy, self._round = True, work
        self._given.release()

    def _run(self) -> None:
        while True:
            self._given.acquire()
            work = self._round
            if work is None:
                return
            for topic in {*work.deliveries, *self._open}:
                try:
                    self._one(topic, work)
                except OSError as error:
                    work.errors[topic] = error
                except MemoryError:
                    work.errors[topic] = OSError(12, "out of memory")
            self.finished, self.is_busy = work, False
            self._done()

    def _one(self, topic: str, work: Round) -> None:
        archive = self._open.get(topic)
        if archive is None:
            archive = self._open[topic] = self._archive_of(topic)
        deliveries = work.deliveries.get(topic)
        if deliveries:
            archive.store([delivery.batch for delivery in deliveries])
        if work.close:
            archive.close()
        elif not deliveries:
            archive.tick()


class Notes(Protocol):
    """What the engine tells the user; topic: which one it concerns."""

    def info(self, topic: str, text: str) -> None:
        """Normal operation."""

    def error(self, topic: str, text: str) -> None:
        """Something failed, and is tried again."""


class Engine:
    """sync_interval: seconds that a message waits at most before it is synced."""

    def __init__(self, feed: Feed, stop: Stop, archive_of: Callable[[str], Archive], sync_interval: float,
                 notes: Notes):
        self._feed, self._stop, self._sync_interval, self._notes = feed, stop, sync_interval, notes
        self._worker = Worker(archive_of, stop.wake)
        self._pending: dict[str, list[Delivery]] = {}
        self._count = 0                     # messages in it
        self._since = 0.0                   # since when there are any
        self._last = time.monotonic()       # end of the last round
        self._hangups = 0
        self._failures = 0
        self._resume = 0.0                  # after a failure: when to try again
        self.stored = 0                     # messages that were synced and finished

    def run(self) -> int:
        """Until a signal. The exit code: 1 if files could not be written at the end. Raises ClientError, ToolError."""
        while not self._stop:
            self._take(self._feed.receive(self._patience()))
            if not self._worker.is_busy:
                self._settle()
                if self._is_due():
                    self._begin(close=self._hung_up)
        return self._last_round()

    def _patience(self) -> float:
        """Seconds until something is due."""
        now = time.monotonic()
        due = max((self._since if self._count else self._last) + self._sync_interval, self._resume)
        return 1.0 if self._worker.is_busy else max(0.001, min(due - now, 1.0))

    def _take(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if not self._count:
                self._since = time.monotonic()
            self._pending.setdefault(delivery.topic, []).append(delivery)
            self._count += delivery.count

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now < self._resume:
            return False
        if self._failures and self._resume:
            self._resume = 0.0
            self._feed.limit(1)         # a probe
        if self._count:
            # The connections' shares are what nsqd sends without an answer; half of one is enough to go on with.
            enough = self._feed.in_flight * ENOUGH / max(self._feed.connected, 1)
            return self._count >= enough or now - self._since >= self._sync_interval or self._hung_up
        return now - self._last >= self._sync_interval or self._hung_up

    @property
    def _hung_up(self) -> bool:
        return self._stop.hangups > self._hangups

    def _begin(self, close: bool) -> None:
        self._hangups = self._stop.hangups
        # What a connection has delivered that is lost since comes again.
        pending = {topic: [one for one in deliveries if self._feed.is_live(one)]
                   for topic, deliveries in self._pending.items()}
        self._pending, self._count = {}, 0
        for topic, deliveries in pending.items():
            self._notes.info(topic, f"syncing {sum(one.count for one in deliveries)} records to disk")
        self._worker.begin(Round(pending, close))

    def _settle(self) -> None:
        """Answers the messages of a round that has ended."""
        done = self._worker.finished
        if done is None:
            return
        self._worker.finished = None
        self._last = time.monotonic()
        for topic, deliveries in done.deliveries.items():
            for delivery in deliveries:
                if topic in done.errors:
                    self._feed.requeue(delivery)
                else:
                    self._feed.finish(delivery)
                    self.stored += delivery.count
        if done.errors:
            self._pause(done.errors)
        elif self._failures and done.deliveries:
            self._failures = 0
            self._feed.limit(None)

    def _pause(self, errors: dict[str, OSError]) -> None:
        """Nothing more is taken for a while; what is here goes back, for consumers elsewhere."""
        self._failures += 1
        pause = PAUSE.pause(self._failures)
        self._resume = time.monotonic() + pause
        self._feed.limit(0)
        for deliveries in self._pending.values():
            for delivery in deliveries:
                self._feed.requeue(delivery)
        self._pending, self._count = {}, 0
        for topic, error in errors.items():
            self._notes.error(topic, f"{reason(error)}; nothing of it is finished, trying again in {pause:g} s")

    def _last_round(self) -> int:
        """Stores what is here, and closes the files."""
        self._feed.limit(0)
        self._wait_for_worker()
        self._begin(close=True)
        self._wait_for_worker()
        return EXIT_FAILED if self._failures else 0

    def _wait_for_worker(self) -> None:
        while self._worker.is_busy:
            self._take(self._feed.receive(0.2))
        self._settle()


def reason(error: OSError) -> str:
    """An error as text, with the file."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
