"""An nsqd to publish to, non-blocking: dialled on a thread, a window of unanswered parcels."""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from nsqc.client.connection import Connection, Dialer
from nsqc.client.errors import ClientError, ConnectError, NoAnswer, Refused
from nsqc.client.options import Options
from nsqc.client.peers import ELSEWHERE, Backoff
from nsqc.tools.cluster import connect
from nsqc.tools.declare import EXIT_FAILED, NoNode, ToolError

# ====================================================================== parcel
# The unit of publishing: a command with its answers, which can be resent, or split in halves.

SIZE = struct.Struct(">i")


class Parcel:
    """command: an MPUB, or consecutive DPUBs. count: messages; answers: expected OKs. note: data for the publisher,
    returned with the answer."""

    __slots__ = ("acknowledged", "answers", "command", "count", "is_deferred", "note", "topic", "was_sent")

    def __init__(self, topic: bytes, command: bytes, count: int, is_deferred: bool = False, note: object = None):
        self.topic, self.command, self.count, self.is_deferred, self.note = topic, command, count, is_deferred, note
        self.answers = count if is_deferred else 1
        self.acknowledged = 0       # answers so far
        self.was_sent = False       # to an nsqd that has not answered

    def rest(self) -> Parcel:
        """The unacknowledged messages: all of an MPUB, because it is published as a whole or not at all."""
        if not self.acknowledged:
            return self
        line, bodies = self._opened()
        return packed(self.topic, line, bodies[self.acknowledged:], self.is_deferred, self.note)

    def halves(self) -> list[Parcel]:
        """Splits it in two; empty if it has a single message."""
        line, bodies = self._opened()
        middle = len(bodies) // 2
        if not middle:
            return []
        return [packed(self.topic, line, part, self.is_deferred, self.note)
                for part in (bodies[:middle], bodies[middle:])]

    def size(self) -> int:
        """Size of its first body, bytes."""
        return len(self._opened()[1][0])

    def _opened(self) -> tuple[bytes, list[bytes]]:
        """The command line, and the bodies."""
        line = self.command[:self.command.index(b"\n") + 1]
        bodies = []
        at = len(line) + (0 if self.is_deferred else 2 * SIZE.size)
        for _ in range(self.count):
            size = SIZE.unpack_from(self.command, at)[0]
            bodies.append(self.command[at + SIZE.size:at + SIZE.size + size])
            at += SIZE.size + size + (len(line) if self.is_deferred else 0)
        return line, bodies


def packed(topic: bytes, line: bytes, bodies: Iterable[bytes], is_deferred: bool, note: object = None) -> Parcel:
    """Builds a parcel of bodies. line: of the MPUB or DPUB."""
    records = [SIZE.pack(len(body)) + body for body in bodies]
    if is_deferred:
        return Parcel(topic, b"".join(line + record for record in records), len(records), True, note)
    content = SIZE.pack(len(records)) + b"".join(records)
    return Parcel(topic, line + SIZE.pack(len(content)) + content, len(records), False, note)


# ====================================================================== target

WINDOW = 4
BACKOFF = Backoff(0.1, 15.0)


class Target:
    """Call tend() often. wake: called on another thread when a dial has ended. failures: consecutive."""

    def __init__(self, address: str, options: Options, wake: Callable[[], None], window: int = WINDOW):
        self.address = address
        self.waiting: deque[Parcel] = deque()   # submitted, in the order of their answers
        self.failures = 0
        self.error: Exception | None = None     # the last failure
        self.next_try = 0.0
        self.since = 0.0                        # start of waiting for the next answer
        self.watched = -1                       # the descriptor registered with a poll
        self._options, self._window = options, window
        self._connection: Connection | None = None
        self._dialer: Dialer[str, Connection] = Dialer(wake)

    @property
    def is_up(self) -> bool:
        """Whether it is connected."""
        return self._connection is not None

    @property
    def has_room(self) -> bool:
        """Whether it accepts another parcel."""
        return self._connection is not None and len(self.waiting) < self._window

    @property
    def wants_write(self) -> bool:
        """Whether bytes wait for the socket."""
        return self._connection is not None and self._connection.unsent

    def fileno(self) -> int:
        """The connection's descriptor; -1 without one."""
        return self._connection.fileno() if self._connection is not None else -1

    def tend(self) -> tuple[list[Parcel], list[Parcel]]:
        """Dials if needed, sends, reads: returns answered parcels, and those to be sent again because the connection
        failed (see `error`)."""
        now = time.monotonic()
        for _, outcome in self._dialer.finished():
            if isinstance(outcome, Connection):
                self._connection = outcome
            else:
                self._failed(outcome)
        if self._connection is None:
            if now >= self.next_try:
                self._dialer.start(self.address, partial(connect, self.address, self._options))
            return [], []
        done: list[Parcel] = []
        try:
            self._count(self._connection.answered(), done)
            self._connection.flush()
            if self.waiting and now - self.since > self._options.timeout:
                raise NoAnswer(f"{self.address}: no answer in time")
        except (ClientError, OSError) as error:
            return done, self._failed(self._last_word(self._connection, done) or error)
        return done, []

    def _last_word(self, connection: Connection, done: list[Parcel]) -> Exception | None:
        """The error sent by nsqd before the connection ended, which may first show when sending."""
        try:
            while answers := connection.answered():
                self._count(answers, done)
        except Refused as error:
            return error
        except (ClientError, OSError):
            pass    # it sent nothing
        return None

    def submit(self, parcel: Parcel) -> None:
        """Sends it as the socket allows; tend() returns it when answered."""
        if not self.waiting:
            self.since = time.monotonic()
        self.waiting.append(parcel)
        if self._connection is not None:
            try:
                self._connection.enqueue(parcel.command, parcel.answers)
            except ConnectError as error:
                self.error = error      # the next tend() finds it, too

    def _count(self, answers: int, done: list[Parcel]) -> None:
        """Processes OKs; parcels completed by them go into done."""
        if answers:
            self.since, self.failures = time.monotonic(), 0
        while answers:
            parcel = self.waiting[0]
            taken = min(answers, parcel.answers - parcel.acknowledged)
            parcel.acknowledged += taken
            answers -= taken
            if parcel.acknowledged == parcel.answers:
                done.append(self.waiting.popleft())

    def _failed(self, error: Exception) -> list[Parcel]:
        self.close_connection()
        self.error = error
        self.failures += 1
        self.next_try = time.monotonic() + BACKOFF.pause(self.failures)
        back = [parcel.rest() for parcel in self.waiting]
        self.waiting.clear()
        return back

    def close_connection(self) -> None:
        """Closes it; parcels stay."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Permanently."""
        self._dialer.close()
        self.close_connection()


# ====================================================================== lane
# Sends parcels in order to one of several nsqd: if one fails, the next gets the unacknowledged ones. At least once.

TOO_LARGE = ("E_BAD_MESSAGE", "E_BAD_BODY")


class Lane:
    """refused is called with a message that nsqd refuses, as its own parcel, and with the answer. patience:
    consecutive failures, over all nsqd, after which it gives up."""

    def __init__(self, addresses: Sequence[str], options: Options, wake: Callable[[], None],
                 refused: Callable[[Parcel, str], None], patience: int):
        self._targets = [Target(address, options, wake) for address in addresses]
        self._current = 0
        self._pending: deque[Parcel] = deque()      # not submitted yet, or to be sent again
        self._refused, self._patience = refused, patience * len(self._targets)
        self._failures = 0
        self.published = 0          # acknowledged messages
        self._is_needed = False     # a parcel was added

    @property
    def target(self) -> Target:
        """The nsqd currently receiving parcels."""
        return self._targets[self._current]

    @property
    def has_room(self) -> bool:
        """Whether to add another parcel. The first one triggers the connect."""
        return not self._pending and (self.target.has_room or not self._is_needed)

    @property
    def is_idle(self) -> bool:
        """Whether everything is answered."""
        return not self._pending and not self.target.waiting

    @property
    def unknown(self) -> int:
        """Messages sent that may or may not be published."""
        parcels = [*(parcel for parcel in self._pending if parcel.was_sent), *self.target.waiting]
        return sum(parcel.count - parcel.acknowledged if parcel.is_deferred else parcel.count for parcel in parcels)

    def put(self, parcel: Parcel) -> None:
        """Adds a parcel."""
        self._is_needed = True
        self._pending.append(parcel)
        self._send()

    def tend(self) -> None:
        """Sends and reads. Raises Refused for errors that any nsqd would give, NoNode, ToolError."""
        if not self._is_needed:
            return
        target = self.target
        failures = target.failures
        done, back = target.tend()
        for parcel in done:
            self.published += parcel.count
            self._failures = 0
        if target.failures > failures or back:
            # After an error that nsqd answers, it has closed the connection and done nothing more.
            for parcel in back:
                parcel.was_sent = parcel.was_sent or not isinstance(target.error, Refused)
            self._pending.extendleft(reversed(back))
            self._failed(target)
        self._send()

    def _send(self) -> None:
        while self._pending and self.target.has_room:
            self.target.submit(self._pending.popleft())

    def _failed(self, target: Target) -> None:
        error = target.error
        if isinstance(error, Refused) and error.code in TOO_LARGE and self._pending:
            # One of its messages is at fault: halving finds it.
            parcel = self._pending.popleft()
            halves = parcel.halves()
            if halves:
                self._pending.extendleft(reversed(halves))
            else:
                self._refused(parcel, error.text)
            target.failures, target.next_try = 0, 0.0
            return
        if isinstance(error, Refused) and error.code not in ELSEWHERE:
            raise error
        self._failures += 1
        if self._failures >= self._patience:
            if isinstance(error, Refused):
                raise ToolError(str(error), EXIT_FAILED)
            raise NoNode(str(error))
        self._current = (self._current + 1) % len(self._targets)

    def close(self) -> None:
        """Closes all connections."""
        for target in self._targets:
            target.close()
