"""What one channel must, may and must not deliver after a kill.

An action of a consumer (FIN, REQ) counts as done once two later commands have been answered, so that the loop iteration
in which it arrived has ended, and its journal has had time to be written. Those that were not done at a kill are in doubt,
and so is what an operator did when no answer came. The next round of deliveries decides: what is not delivered then has to stay away.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from tests.support.daemon import Message
from tests.support.publishing import Batch, Books

# After a FIN or REQ is known to have arrived: what the thread that writes the journal may take, and this process to notice.
JOURNAL_SECONDS = 0.1
EARLY_SECONDS = 0.002       # before its time that a message may come: delays are given in milliseconds


@dataclass(frozen=True)
class Promises:
    """What a kind of topic promises; one in memory whose queues have no room in memory keeps messages, and little else."""

    cursors: bool = True        # finished messages stay away; attempts and delays survive
    whole: bool = True          # a message that one channel has is in all of them, with its whole batch


@dataclass
class Known:
    """All messages of the topic."""

    books: Books
    stored: dict[bytes, Batch] = field(default_factory=dict)    # acknowledged, or delivered after a kill
    # Delivered and not acknowledged: a kill may come before the write, and then they are not in the log.
    seen: set[bytes] = field(default_factory=set)
    void: set[bytes] = field(default_factory=set)               # sent before a kill, never answered, not stored

    def store(self, batch: Batch) -> None:
        """A batch is in the log, with all its parts."""
        self.stored.update(dict.fromkeys(batch.bodies, batch))

    def take_acknowledged(self) -> None:
        """After a kill: what was acknowledged is stored."""
        for batch in self.books.acknowledged:
            self.store(batch)
        self.books.acknowledged.clear()

    def open(self) -> set[bytes]:
        """What was sent, and is stored or not."""
        return self.books.sent.keys() - self.stored.keys() - self.void - self.seen

    def settle(self) -> None:
        """All channels have delivered what they had: what nobody has seen is not there."""
        self.void |= self.open()


def show(body: bytes) -> str:
    """A body without what fills it up."""
    return body.rstrip(b".").decode()


@dataclass(frozen=True)
class Requeue:
    """A REQ, and what held for its message before."""

    when: float         # time.monotonic()
    body: bytes
    floor: int
    due: float


class ChannelBooks:
    """Of one channel; used by several threads."""

    def __init__(self, name: str, known: Known, promises: Promises, created: float = 0.0):
        """created: time.monotonic() from which on what is published must be delivered."""
        self.name = name
        self.created = created
        self._known = known
        self._promises = promises
        self._lock = threading.Lock()
        self._finished: dict[bytes, float] = {}     # with time.monotonic() when that was certain
        self._doubtful: set[bytes] = set()          # finished, perhaps
        self._skipped: set[bytes] = set()           # seeked over or emptied, perhaps
        self._gone: set[bytes] = set()              # emptied or seeked over for certain, once all frames under way are read
        self._floors: dict[bytes, int] = {}         # attempts that a requeue has reported
        self._due: dict[bytes, float] = {}          # time.time() before which a requeued message may not come
        self._requeues: list[Requeue] = []          # since the start
        self._killed = 0.0                          # time.monotonic()
        self._change: Callable[[], None] = self._skip   # what the last call of an operator does
        self._moves = 0                             # odd while an operator's call is under way
        self.refused: list[bytes] = []              # FIN and REQ that failed
        self.counts = {"delivered": 0, "finished": 0, "requeued": 0, "again": 0}

    @property
    def moves(self) -> int:
        """How often calls of operators have begun or ended."""
        return self._moves

    @property
    def moved(self) -> bool:
        """Whether an operator has moved the channel: then FIN and REQ may fail, and attempts and delays begin again."""
        return self._moves > 0

    # ------------------------------------------------------------------ deliveries

    def deliver(self, message: Message, after_kill: bool = False, moves: int = 0) -> None:
        """A message arrives. Fails if it must not, or not yet.

        after_kill: nothing that was sent before is under way. moves: of the last command that was answered before the
        message came, what `moves` said when it was sent.
        """
        now, body = time.time(), message.body
        with self._lock:
            batch = self._known.books.sent.get(body)
            assert batch is not None, f"{self.name}: {show(body)} was never published"
            assert body not in self._known.void or not self._promises.whole, f"{self.name}: {show(body)} was not in the log after a kill, and is now"
            if self._promises.whole and after_kill:
                self._known.store(batch)
            else:
                self._known.seen.add(body)
            self.counts["delivered"] += 1
            if not after_kill and moves != self._moves and (body in self._finished or body in self._doubtful):
                return      # sent before an operator moved the channel, perhaps; another consumer has finished it since
            if self._promises.cursors:
                self._check(message, batch, now)
            self.counts["again"] += body in self._doubtful or body in self._finished
            self._doubtful.discard(body)
            self._finished.pop(body, None)
            if after_kill:
                self._skipped.discard(body)

    def _check(self, message: Message, batch: Batch, now: float) -> None:
        body = message.body
        assert now > batch.due - EARLY_SECONDS, f"{self.name}: {show(body)} comes {batch.due - now:.3f} s too early"
        assert body not in self._finished, (
            f"{self.name}: {show(body)} comes again, finished {self._killed - self._finished[body]:.3f} s before the kill")
        if self.moved:
            return
        due, floor = self._due.pop(body, 0.0), self._floors.get(body, 0)
        assert now > due - EARLY_SECONDS, f"{self.name}: {show(body)}, requeued, comes {due - now:.3f} s too early"
        assert message.attempts > floor, f"{self.name}: {show(body)} has {message.attempts} attempts after {floor}"

    # ------------------------------------------------------------------ a consumer's actions

    def fin(self, body: bytes) -> int:
        """A FIN is about to be sent; a number for finish()."""
        with self._lock:
            self._doubtful.add(body)
            return self._moves

    def finish(self, body: bytes, moves: int) -> None:
        """A FIN is done. If the channel was moved meanwhile, it remains in doubt."""
        with self._lock:
            if body in self._doubtful and moves == self._moves and not moves % 2:
                self._doubtful.discard(body)
                self._finished[body] = time.monotonic()
                self.counts["finished"] += 1

    def requeue(self, body: bytes, attempts: int, due: float) -> Requeue:
        """A REQ is about to be sent; due: time.time()."""
        with self._lock:
            made = Requeue(time.monotonic(), body, self._floors.get(body, 0), self._due.get(body, 0.0))
            self._floors[body], self._due[body] = attempts, due
            self._requeues.append(made)
            self.counts["requeued"] += 1
            return made

    def take_back(self, requeues: Sequence[Requeue]) -> None:
        """Not done at the kill; the last one comes last."""
        with self._lock:
            for requeue in reversed(requeues):
                self._floors[requeue.body], self._due[requeue.body] = requeue.floor, requeue.due

    # ------------------------------------------------------------------ an operator's actions

    @contextlib.contextmanager
    def rewound(self) -> Iterator[None]:
        """Around a seek to the beginning: what was finished may come again."""
        self._move(self._again)
        yield
        self._move(self._again)

    def _again(self) -> None:
        self._doubtful |= self._finished.keys() | self._gone | self._skipped
        for gone in (self._finished, self._gone, self._skipped):
            gone.clear()

    @contextlib.contextmanager
    def emptied(self) -> Iterator[None]:
        """Around a call that skips all that waits: what was acknowledged before must not come once it is answered."""
        acknowledged = {body for batch in self._known.books.acknowledged for body in batch.bodies}
        acknowledged |= self._known.stored.keys()
        self._move(self._skip)
        yield
        self._move(self._skip)
        with self._lock:
            self._gone |= acknowledged

    def _skip(self) -> None:
        self._skipped |= self._known.books.sent.keys()

    def _move(self, change: Callable[[], None]) -> None:
        with self._lock:
            self._moves += 1
            self._change = change
            change()

    # ------------------------------------------------------------------ after a kill

    def killed(self, when: float, stall: float) -> None:
        """No consumer or operator works any more. when: time.monotonic() of the kill; stall: how long the machine has
        let a writer wait before that."""
        journal_seconds = JOURNAL_SECONDS + stall
        with self._lock:
            if self._moves % 2:
                # The call was not answered: it took effect at any time up to the kill and is remembered, or it is not.
                self._change()
                self._skip()
                self._moves += 1
            self._killed = when
            late = [body for body, finished in self._finished.items() if finished > when - journal_seconds]
            for body in late:
                del self._finished[body]
            self._doubtful.update(late)
            requeues, self._requeues = self._requeues, []
        self.take_back([requeue for requeue in requeues if requeue.when > when - journal_seconds])
        with self._lock:
            self._finish(self._gone)
            self._doubtful -= self._gone
            self._skipped -= self._gone
            self._gone.clear()

    def required(self) -> set[bytes]:
        """What has to be delivered."""
        with self._lock:
            return {body for body, batch in self._known.stored.items() if batch.begun >= self.created
                    } - self._finished.keys() - self._doubtful - self._skipped

    def settle(self) -> None:
        """All that was there has been delivered: what is still in doubt was finished."""
        with self._lock:
            self._finish(self._doubtful | (self._skipped & self._known.stored.keys()))
            self._doubtful.clear()
            self._skipped.clear()

    def finish_all(self, bodies: Collection[bytes]) -> None:
        """Finished, and answered for."""
        with self._lock:
            self._finish(bodies)

    def _finish(self, bodies: Collection[bytes]) -> None:
        self._finished.update(dict.fromkeys(bodies, time.monotonic()))
