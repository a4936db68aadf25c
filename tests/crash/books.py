"""The messages that one channel must, may and must not deliver after a kill.

A consumer's action (FIN, REQ) counts as done once two later commands have been answered: then its loop iteration has
ended, and its journal has had time to be written. Actions not done at a kill are in doubt, and so are an operator's
unanswered calls. The next round of deliveries decides: messages not delivered then must stay away.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from tests.support.daemon import Message
from tests.support.publishing import Batch, Books

# Grace after a FIN or REQ is known to have arrived: for the journal's writer thread, and for this process to notice.
JOURNAL_SECONDS = 0.1
EARLY_SECONDS = 0.002       # a message may come this much early: delays are given in milliseconds


@dataclass(frozen=True)
class Promises:
    """The promises for a kind of topic; one in memory, with no room in its queues, keeps messages and little else."""

    cursors: bool = True        # finished messages stay away; attempts and delays survive
    whole: bool = True          # a message that reaches one channel reaches all, with its whole batch


@dataclass
class Known:
    """All messages of the topic."""

    books: Books
    stored: dict[bytes, Batch] = field(default_factory=dict)    # acknowledged, or delivered after a kill
    # Delivered and not acknowledged: a kill may come before the write, and then the log lacks them.
    seen: set[bytes] = field(default_factory=set)
    void: set[bytes] = field(default_factory=set)               # sent before a kill, never answered, not stored
    ids: dict[bytes, bytes] = field(default_factory=dict)       # message ids to bodies, and bodies to ids

    def check_id(self, message: Message) -> None:
        """A message keeps its id, and no other has it: a FIN would finish the wrong one."""
        body = self.ids.setdefault(message.id, message.body)
        assert body == message.body, f"{show(body)} and {show(message.body)} have the id {message.id.decode()}"
        id = self.ids.setdefault(message.body, message.id)
        assert id == message.id, f"{show(message.body)} has the ids {id.decode()} and {message.id.decode()}"

    def store(self, batch: Batch) -> None:
        """A batch is in the log, with all its parts."""
        self.stored.update(dict.fromkeys(batch.bodies, batch))

    def take_acknowledged(self) -> None:
        """After a kill: acknowledged messages are stored."""
        for batch in self.books.acknowledged:
            self.store(batch)
        self.books.acknowledged.clear()

    def open(self) -> set[bytes]:
        """Bodies that were sent, and may or may not be stored."""
        return self.books.sent.keys() - self.stored.keys() - self.void - self.seen

    def settle(self) -> None:
        """All channels have delivered everything: an unseen message does not exist."""
        self.void |= self.open()


def show(body: bytes) -> str:
    """A body without its padding."""
    return body.rstrip(b".").decode()


@dataclass(frozen=True)
class Requeue:
    """A REQ, and the previous state of its message."""

    when: float         # time.monotonic()
    body: bytes
    floor: int
    due: float


class ChannelBooks:
    """The books of one channel; used by several threads."""

    def __init__(self, name: str, known: Known, promises: Promises, created: float = 0.0):
        """created: time.monotonic() from which published messages must be delivered."""
        self.name = name
        self.created = created
        self._known = known
        self._promises = promises
        self._lock = threading.Lock()
        self._finished: dict[bytes, float] = {}     # with time.monotonic() when that was certain
        self._doubtful: set[bytes] = set()          # finished, perhaps
        self._skipped: set[bytes] = set()           # seeked over or emptied, perhaps
        self._gone: set[bytes] = set()  # emptied or seeked over for certain, once all frames in transit are read
        self._floors: dict[bytes, int] = {}         # attempts reported by a requeue
        self._due: dict[bytes, float] = {}          # time.time() before which a requeued message may not come
        self._requeues: list[Requeue] = []          # since the start
        self._killed = 0.0                          # time.monotonic()
        self._change: Callable[[], None] = self._skip   # the effect of an operator's last call
        self._moves = 0                             # odd during an operator's call
        self.refused: list[bytes] = []              # FIN and REQ that failed
        self.counts = {"delivered": 0, "finished": 0, "requeued": 0, "again": 0}

    @property
    def moves(self) -> int:
        """The number of begun and ended operator calls."""
        return self._moves

    @property
    def moved(self) -> bool:
        """Whether an operator has moved the channel: then FIN and REQ may fail, and attempts and delays start over."""
        return self._moves > 0

    # ------------------------------------------------------------------ deliveries

    def deliver(self, message: Message, after_kill: bool = False, moves: int = 0) -> None:
        """A message arrives. Fails if it must not, or not yet.

        after_kill: nothing sent before is in transit. moves: the value of `moves` when the last command was sent that
        was answered before the message came.
        """
        now, body = time.time(), message.body
        with self._lock:
            batch = self._known.books.sent.get(body)
            assert batch is not None, f"{self.name}: {show(body)} was never published"
            self._known.check_id(message)
            assert body not in self._known.void or not self._promises.whole, f"{self.name}: {show(body)} was not in the log after a kill, and is now"
            if self._promises.whole and after_kill:
                self._known.store(batch)
            else:
                self._known.seen.add(body)
            self.counts["delivered"] += 1
            if not after_kill and moves != self._moves and (body in self._finished or body in self._doubtful):
                return      # perhaps sent before an operator moved the channel; another consumer has finished it since
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
        """Called before a FIN is sent; returns a number for finish()."""
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
        """Called before a REQ is sent; due: time.time()."""
        with self._lock:
            made = Requeue(time.monotonic(), body, self._floors.get(body, 0), self._due.get(body, 0.0))
            self._floors[body], self._due[body] = attempts, due
            self._requeues.append(made)
            self.counts["requeued"] += 1
            return made

    def take_back(self, requeues: Sequence[Requeue]) -> None:
        """The actions not done at the kill, in order."""
        with self._lock:
            for requeue in reversed(requeues):
                self._floors[requeue.body], self._due[requeue.body] = requeue.floor, requeue.due

    # ------------------------------------------------------------------ an operator's actions

    @contextlib.contextmanager
    def rewound(self) -> Iterator[None]:
        """Wraps a seek to the beginning: finished messages may come again."""
        self._move(self._again)
        yield
        self._move(self._again)

    def _again(self) -> None:
        self._doubtful |= self._finished.keys() | self._gone | self._skipped
        for gone in (self._finished, self._gone, self._skipped):
            gone.clear()

    @contextlib.contextmanager
    def emptied(self) -> Iterator[None]:
        """Wraps a call that skips all waiting messages: once it is answered, messages acknowledged before it must not
        come."""
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
        """Called when no consumer or operator works any more. when: time.monotonic() of the kill; stall: how long the
        machine blocked a writer before that."""
        journal_seconds = JOURNAL_SECONDS + stall
        with self._lock:
            if self._moves % 2:
                # The call was not answered: it took effect at some time before the kill and is remembered, or it did
                # not.
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
        """The messages that must be delivered."""
        with self._lock:
            return {body for body, batch in self._known.stored.items() if batch.begun >= self.created
                    } - self._finished.keys() - self._doubtful - self._skipped

    def settle(self) -> None:
        """Everything present has been delivered: the remaining doubtful messages were finished."""
        with self._lock:
            self._finish(self._doubtful | (self._skipped & self._known.stored.keys()))
            self._doubtful.clear()
            self._skipped.clear()

    def finish_all(self, bodies: Collection[bytes]) -> None:
        """Finished, and accounted for."""
        with self._lock:
            self._finish(bodies)

    def _finish(self, bodies: Collection[bytes]) -> None:
        self._finished.update(dict.fromkeys(bodies, time.monotonic()))
