"""Archives a feed: messages are collected, written and synced on threads, and only then finished."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from nsqc.client.backoff import Backoff
from nsqc.tools.errors import EXIT_FAILED
from nsqc.tools.tofile.worker import Outcome, Round, Worker

if TYPE_CHECKING:
    from nsqc.tools.feed import Delivery, Feed, Source
    from nsqc.tools.stopping import Stop
    from nsqc.tools.tofile.archive import Archive

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
