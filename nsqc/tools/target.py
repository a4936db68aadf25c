"""An nsqd to publish to, non-blocking: dialled on a thread, a window of unanswered parcels."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial

from nsqc.client.backoff import Backoff
from nsqc.client.connection import Connection
from nsqc.client.dialer import Dialer
from nsqc.client.errors import ClientError, ConnectError, NoAnswer, Refused
from nsqc.client.options import Options
from nsqc.tools.parcel import Parcel
from nsqc.tools.probing import connect

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
