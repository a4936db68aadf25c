"""One V2 connection to an nsqd; the constructor connects, identifies, upgrades and authenticates.

Publishing blocks until it is answered; consuming blocks only up to a given timeout. Only one thread at a time may use
it; messages may be answered by any thread.
"""

from __future__ import annotations

import math
import os
import select
import socket
import ssl
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar, Unpack

from nsqc.client.address import checked_address
from nsqc.client.commands import BATCH_BYTES, BATCH_ROWS, WINDOW, Batch, Body, Deferred, Ids, Many, Publication, Single
from nsqc.client.core import CLOSE_SECONDS, CLS, ERROR, NOP, Compress, Core, Reply, Secure, Step, Stream
from nsqc.client.errors import ClientError, Closed, ConnectError, NoAnswer, WrongPort
from nsqc.client.frames import BadStream, Message, messages
from nsqc.client.log import Log
from nsqc.client.lookup import reason, with_port
from nsqc.client.options import MIB, ConnectionOptions, Options
from nsqc.wire.codecs import CodecError

# ====================================================================== waker
# Wakes a thread that waits in a poll or a selector.

class Waker:
    """fileno() becomes readable by wake(), until calm()."""

    def __init__(self) -> None:
        # Not a pipe: a closed socket refuses a late wake(), a closed descriptor may be another file by then.
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._is_woken = False

    def fileno(self) -> int:
        """For a poll or a selector."""
        return self._read.fileno()

    def wake(self) -> None:
        """Thread-safe; callable from signal handlers."""
        with suppress(OSError):     # it is full, and so readable, or closed
            self._write.send(b".")
        self._is_woken = True       # after the byte, which a calm() in between would miss otherwise

    def calm(self) -> None:
        """Drains the bytes written by wake(), if there are any: costs no system call otherwise."""
        if self._is_woken:
            self._is_woken = False
            with suppress(OSError):
                self._read.recv(4096)

    def close(self) -> None:
        """Idempotent; later calls of wake() do nothing."""
        self._read.close()
        self._write.close()

    def __del__(self) -> None:
        if hasattr(self, "_write"):
            self.close()


# ====================================================================== connection

log = Log("nsqc.client")

PULL_BYTES = MIB                # read from one connection before others get a chance
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection(Core):
    """address: HOST:PORT or the path of a unix socket. timeout: seconds for connecting and for every reply. All other
    options: nsqc.client.options.ConnectionOptions.

    Raises ConnectError, Refused, AuthError; BadAddress, ValueError, TypeError for invalid arguments.
    """

    def __init__(self, address: str, *, timeout: float = 10.0, **options: Unpack[ConnectionOptions]):
        self._stream: Stream | None = None
        super().__init__(checked_address(address), Options("Connection", ("address",), timeout, options))
        self._connect()

    @classmethod
    def with_options(cls, address: str, options: Options, patience: float = math.inf) -> Connection:
        """A connection from checked arguments. patience: seconds for all of it. Raises ConnectError, Refused,
        AuthError."""
        self = cls.__new__(cls)
        self._stream = None
        Core.__init__(self, address, options)
        self._connect(patience)
        return self

    def _connect(self, patience: float = math.inf) -> None:
        self._latest = time.monotonic() + patience      # no wait continues beyond it
        # Held for each use of the stream, never while waiting: threads answer messages while another one reads.
        self._lock = threading.RLock()
        self._owed: deque[int] = deque()        # OKs outstanding for each submission
        self._exact = True                      # do not read past a reply: TLS or a codec may follow it
        self._stream = self._guard(lambda: Stream(self.address, min(self.timeout, patience)))
        _connections.add(self)
        try:
            self._greet()
        except BaseException as error:
            self.close()
            if isinstance(error, WrongPort):
                raise with_port(self.address, error, min(self.timeout, patience)) from None
            raise
        self._latest = math.inf

    # ------------------------------------------------------------------ greeting

    def _greet(self) -> None:
        steps = self.greeting()
        try:
            step = next(steps)
            while True:
                self._take_step(step)
                step = steps.send(self._exact_reply() if self._exact else self.reply())
        except StopIteration:
            pass

    def _take_step(self, step: Step) -> None:
        if isinstance(step, Secure):
            self._guard(lambda: self._socket.secure(step.context, step.server_name, self._deadline()))
        elif isinstance(step, Compress):
            self._socket.compress(step.codec)
            self._exact = False
        else:
            self._send(step.data)

    def _exact_reply(self) -> bytes:
        """The next response; reads no byte beyond it."""
        deadline = self._deadline()
        while True:
            head = self._guard(lambda: self._socket.receive_exactly(8, deadline))
            size = self.frame_size(head)
            data = self._guard(partial(self._socket.receive_exactly, size, deadline))
            if self.classify(int.from_bytes(head[4:], "big"), data) is not Reply.HEARTBEAT:
                return data
            self._send(NOP)

    # ------------------------------------------------------------------ publishing

    def publish(self, topic: str, body: Body) -> None:
        """PUB; returns when nsqd has acknowledged it. Raises BadName, BadMessage, Refused, ConnectError."""
        self.publish_all(Single(self.options, topic, body))

    def publish_many(self, topic: str, bodies: Iterable[Body], *, batch_bytes: int = BATCH_BYTES,
                     batch_rows: int = BATCH_ROWS, window: int = WINDOW) -> None:
        """MPUBs of up to batch_bytes and batch_rows, up to window of them unanswered; returns when nsqd has
        acknowledged all. bodies: any iterable, consumed before anything is sent. Raises BadMessage or the iterable's
        exception before anything is sent, BadName, Refused, ConnectError."""
        self.publish_all(Many(self.options, topic, bodies, batch_bytes, batch_rows, window))

    def publish_deferred(self, topic: str, body: Body, delay_ms: int) -> None:
        """DPUB: delivered after delay_ms milliseconds. Raises as publish."""
        self.publish_deferred_many(topic, (body,), delay_ms)

    def publish_deferred_many(self, topic: str, bodies: Iterable[Body], delay_ms: int) -> None:
        """A DPUB for each body, pipelined. Raises as publish_many."""
        self.publish_all(Deferred(self.options, topic, bodies, delay_ms))

    def publish_all(self, publication: Publication, patience: float = math.inf) -> None:
        """Sends the commands and waits for their answers. patience: most seconds between two answers, besides the
        timeout. Raises Refused, ConnectError."""
        self.drain(0)
        due: deque[int] = deque()
        try:
            self._latest = time.monotonic() + patience
            for command in publication.commands(self.offered):
                publication.submitting(command.end)
                self.submit(command.data, command.answers)
                due.append(command.end)
                while len(due) >= publication.window:
                    self._confirm(publication, due.popleft(), patience)
            while due:
                self._confirm(publication, due.popleft(), patience)
        finally:
            self._latest = math.inf

    def _confirm(self, publication: Publication, end: int, patience: float) -> None:
        self.drain(len(self._owed) - 1)
        publication.confirm(end)
        self._latest = time.monotonic() + patience

    def submit(self, commands: bytes | bytearray | memoryview, answers: int = 1) -> None:
        """Sends commands that nsqd answers with this many OKs. Raises ConnectError."""
        self._send(commands)
        self._owed.append(answers)

    def drain(self, outstanding: int) -> int:
        """Waits until at most this many submissions are unanswered; returns the number answered meanwhile.
        Raises Refused, ConnectError."""
        answered = 0
        while len(self._owed) > outstanding:
            self.expect_ok(self.reply())
            self._owed[0] -= 1
            if not self._owed[0]:
                self._owed.popleft()
                answered += 1
        return answered

    def enqueue(self, commands: bytes, answers: int = 1) -> None:
        """submit() without waiting: sends what the socket accepts; flush() sends the rest. Raises ConnectError."""
        self._owed.append(answers)
        self.post(commands)

    def answered(self) -> int:
        """drain() without waiting: reads available answers; returns the number of OKs. Raises Refused, ConnectError,
        but never instead of OKs that arrived earlier."""
        if not self.inflow.replies:
            self._guard(lambda: self._socket.receive(self.inflow, None))
        count = 0
        while self.inflow.replies and not (count and self.inflow.replies[0][0] == ERROR):
            kind, data = self.inflow.replies.pop(0)
            reply = self.classify(kind, data)
            if reply is Reply.HEARTBEAT:
                self.post(NOP)
            elif reply is Reply.ANSWER:
                self.expect_ok(data)
                if not self._owed:
                    raise ConnectError(f"{self.address}: answers {data[:60]!r} without a command")
                self._owed[0] -= 1
                if not self._owed[0]:
                    self._owed.popleft()
                count += 1
        return count

    def ping(self) -> None:
        """Answers pending heartbeats: for connections that publish rarely. Raises ConnectError, Refused."""
        self.pull()

    # ------------------------------------------------------------------ consuming

    def subscribe(self, topic: str, channel: str) -> None:
        """SUB: from now on the connection consumes; nsqd sends nothing before ready(). Raises BadName, Refused,
        ConnectError."""
        self._send(self.sub(topic, channel))
        self.expect_ok(self.reply())
        self.subscribed = True

    def ready(self, count: int, backs_off: bool = False) -> None:
        """RDY: the number of messages that may be in flight. Raises ConnectError.
        backs_off: tells nsqc's statistics that it is low because of failures."""
        self.post(self.rdy(count, backs_off))

    def receive(self, timeout: float | None = None) -> list[Message]:
        """The messages received: at least one, or none if nothing arrives within timeout seconds (None: waits forever).
        Answers heartbeats. Raises ConnectError, Refused."""
        return self.collected() if self._wait_for_rows(timeout) else []

    def receive_batch(self, timeout: float | None = None) -> Batch | None:
        """Like receive(), as columns; None if nothing arrives. Finish them by Batch.finish(), or by finish_ids()."""
        return Batch(self.inflow.columns(), self) if self._wait_for_rows(timeout) else None

    def collected(self) -> list[Message]:
        """The messages received by pull()."""
        with self._lock:
            received = messages(self.inflow.columns(), self)
            self.hold(message.id for message in received)
        return received

    def finish_ids(self, ids: Ids) -> None:
        """FIN for any number of ids, 16 bytes each, in one write. Raises ConnectError."""
        with self._lock:
            super().finish_ids(ids)

    def requeue_ids(self, ids: Ids, delay_ms: int = 0) -> None:
        """REQ for ids, 16 bytes each. Raises ConnectError, ValueError."""
        with self._lock:
            super().requeue_ids(ids, delay_ms)

    def move_id(self, message_id: bytes, topic: str, reason: str) -> bool:
        """See Core."""
        with self._lock:
            return super().move_id(message_id, topic, reason)

    def keep_alive(self, now: float, limit: float) -> None:
        """See Core."""
        with self._lock:
            super().keep_alive(now, limit)

    def _wait_for_rows(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self.pull()
            if self.inflow.rows:
                return True
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            if not self.pending:
                self._wait(left)

    def _wait(self, seconds: float | None) -> None:
        """Waits until the socket is readable, or writable if bytes are unsent."""
        poll = select.poll()
        poll.register(self, select.POLLIN | (0 if self.flush() else select.POLLOUT))
        poll.poll(None if seconds is None else max(seconds * 1000, 1))

    # ------------------------------------------------------------------ non-blocking

    def fileno(self) -> int:
        """For a selector; -1 when closed."""
        return -1 if self._stream is None else self._stream.fileno()

    @property
    def pending(self) -> bool:
        """Whether pull() would find bytes that a selector cannot see."""
        return self._socket.pending

    @property
    def unsent(self) -> bool:
        """Whether posted bytes wait for the socket."""
        return self._socket.unsent > 0

    def post(self, data: bytes) -> None:
        """Sends as much as the socket accepts; flush() sends the rest. Raises ConnectError."""
        with self._lock:
            stream = self._socket
            stream.push(data)
            self._guard(stream.flush)

    def flush(self) -> bool:
        """Sends posted bytes; returns whether all are sent. Raises ConnectError."""
        with self._lock:
            return self._guard(self._socket.flush)

    def pull(self) -> int:
        """Reads available input into inflow; returns the number of messages. Raises ConnectError; Refused for an error
        that ends the connection."""
        with self._lock:
            rows, received, stream = self.inflow.rows, 0, self._socket
            while received < PULL_BYTES or stream.pending:
                count = self._guard(partial(stream.receive, self.inflow, None))
                if not count:
                    break
                received += count
            if stream.unsent:
                self.flush()
            if self.inflow.replies:
                self._handle_replies()
            return self.inflow.rows - rows

    def _handle_replies(self) -> bool:
        """Handles frames that are not messages; returns whether nsqd waits for the connection to close."""
        closing = False
        while self.inflow.replies:
            reply = self.classify(*self.inflow.replies.pop(0))
            if reply is Reply.HEARTBEAT:
                self.post(NOP)
            closing |= reply is Reply.CLOSING
        return closing

    # ------------------------------------------------------------------ closing

    def close(self) -> None:
        """Closes at once. Messages in flight are delivered again after their timeout; leave() requeues them."""
        if self._stream is not None:
            with self._lock:
                self._stream.close()

    def leave(self) -> None:
        """Requeues all unanswered messages, including those still being received; then closes."""
        if self.fileno() < 0:
            return
        try:
            if self.subscribed:
                self._requeue_all()
            self._socket.close_gently(time.monotonic() + CLOSE_SECONDS)
        except (OSError, ClientError) as error:
            log.debug("%s: while leaving: %s", self.address, error)
        finally:
            self.close()

    def _requeue_all(self) -> None:
        with self._lock:
            self.ready(0)
            self.post(self.requeue_unanswered() + CLS)
        deadline = time.monotonic() + CLOSE_SECONDS
        closing = False
        while not closing and time.monotonic() < deadline:
            with self._lock:
                self.post(self.requeue_unanswered())
                try:
                    self._guard(lambda: self._socket.receive(self.inflow, time.monotonic() + 0.1))
                except NoAnswer:
                    continue
                closing = self._handle_replies()
        with self._lock:
            self.post(self.requeue_unanswered())
            self._guard(lambda: self._socket.send(b"", time.monotonic() + CLOSE_SECONDS))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def __del__(self) -> None:
        if self.fileno() >= 0:
            warnings.warn(f"unclosed connection to nsqd {self.address}", ResourceWarning, stacklevel=2, source=self)
            self.close()

    # ------------------------------------------------------------------ the stream

    @property
    def _socket(self) -> Stream:
        if self._stream is None:
            raise Closed(f"{self.address}: the connection is closed")
        return self._stream

    def _deadline(self) -> float:
        return min(time.monotonic() + self.timeout, self._latest)

    def _send(self, data: bytes | bytearray | memoryview) -> None:
        self._guard(lambda: self._socket.send_all(data, self._deadline()))

    def reply(self) -> bytes:
        """The next answer, within the timeout; answers heartbeats meanwhile. Raises Refused, ConnectError."""
        deadline = self._deadline()
        while True:
            while self.inflow.replies:
                kind, data = self.inflow.replies.pop(0)
                reply = self.classify(kind, data)
                if reply is Reply.HEARTBEAT:
                    self._send(NOP)
                elif reply is not Reply.LATE:
                    return data
            self._guard(lambda: self._socket.receive(self.inflow, deadline))

    def _guard(self, call: Callable[[], T]) -> T:
        """Translates the stream's exceptions into ClientErrors."""
        try:
            return call()
        except ClientError:
            raise
        except (TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise NoAnswer(f"{self.address}: no answer in time") from None
        except EOFError as error:
            raise self.ended(*error.args) from None
        except (ConnectionResetError, BrokenPipeError) as error:
            raise self.ended(text=reason(error)) from None
        except (BadStream, CodecError) as error:
            raise ConnectError(f"{self.address}: {error}") from None
        except (OSError, ValueError) as error:
            if not isinstance(error, ssl.SSLError) and self._stream is not None and self.fileno() < 0:
                raise Closed(f"{self.address}: the connection is closed") from None
            raise self.failed(error) from None


def _after_fork() -> None:
    """Closes the copies of connections in a forked child: two processes must not share one."""
    for connection in list(_connections):
        connection._lock = threading.RLock()    # the thread that held it does not exist here
        connection.close()


os.register_at_fork(after_in_child=_after_fork)


# ====================================================================== dialer
# Runs dials and lookups on threads, so that an unresponsive server delays nothing else.

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Dialer(Generic[K, T]):
    """Runs calls on threads: one at a time per key, and up to `most`. wake: called on a thread when its call has ended.
    All methods are for one thread."""

    def __init__(self, wake: Callable[[], None], most: float = math.inf) -> None:
        self._wake, self._most = wake, most
        self._running: set[K] = set()
        self._done: deque[tuple[K, T | Exception]] = deque()
        self._lock = threading.Lock()       # of _done and _closed
        self._closed = False

    @property
    def is_busy(self) -> bool:
        """Whether a call is running, or its result not collected yet."""
        return bool(self._running)

    def start(self, key: K, call: Callable[[], T]) -> bool:
        """Begins a call, unless one for this key is running, or the limit is reached; returns whether it has begun."""
        if key in self._running or len(self._running) >= self._most:
            return False
        self._running.add(key)
        # A daemon thread: the process does not wait for its timeout at exit.
        threading.Thread(target=self._run, args=(key, call), name="nsqc dialer", daemon=True).start()
        return True

    def finished(self) -> list[tuple[K, T | Exception]]:
        """The results of calls that ended since the last time, or their exceptions."""
        if not self._done:
            return []
        with self._lock:
            found = list(self._done)
            self._done.clear()
        self._running.difference_update(key for key, _ in found)
        return found

    def close(self) -> None:
        """Closes connections that were not collected, and later ones."""
        with self._lock:
            self._closed = True
        for _, outcome in self._done:
            self._discard(outcome)
        self._done.clear()

    def _run(self, key: K, call: Callable[[], T]) -> None:
        outcome: T | Exception
        try:
            outcome = call()
        except Exception as error:      # any exception: it is raised where the consumer is used
            outcome = error
        with self._lock:
            if not self._closed:
                self._done.append((key, outcome))
                self._wake()
                return
        self._discard(outcome)

    @staticmethod
    def _discard(outcome: T | Exception) -> None:
        if isinstance(outcome, Connection):
            outcome.close()


def subscribed(connection: Connection, topic: str, channel: str) -> Connection:
    """The connection, consuming, for an owner that reconnects; closed after a failure. Raises as subscribe()."""
    connection.tolerant = True
    try:
        connection.subscribe(topic, channel)
    except BaseException:
        connection.close()
        raise
    return connection
