"""One V2 connection to an nsqd: connected, identified, upgraded and authenticated when it exists.

Publishing blocks for its answers; consuming blocks only where a time-out says so. Not for several threads at once.
"""

from __future__ import annotations

import logging
import os
import select
import ssl
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar, Unpack

from nsqc.client.address import checked_address
from nsqc.client.batch import Batch
from nsqc.client.commands import BATCH_BYTES, BATCH_ROWS, WINDOW, Body, Deferred, Many, Publication, Single
from nsqc.client.core import CLOSE_SECONDS, CLS, NOP, Compress, Core, Said, Secure, Step
from nsqc.client.errors import ClientError, Closed, ConnectError, NoAnswer
from nsqc.client.inflow import BadStream
from nsqc.client.message import Message, messages
from nsqc.client.options import MIB, ConnectionOptions, Options
from nsqc.client.stream import Stream
from nsqc.wire.codec import CodecError

log = logging.getLogger("nsqc.client")
T = TypeVar("T")

PULL_BYTES = MIB                # read of one connection before others have their turn
_open: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection(Core):
    """address: HOST:PORT or the path of a unix socket. timeout: seconds for connecting and for any answer. Everything
    else: nsqc.client.options.ConnectionOptions.

    Raises ConnectError, Refused, AuthError; BadAddress, ValueError, TypeError for arguments that cannot be.
    """

    def __init__(self, address: str, *, timeout: float = 10.0, **options: Unpack[ConnectionOptions]):
        self._stream: Stream | None = None
        super().__init__(checked_address(address), Options("Connection", ("address",), timeout, options))
        self._begin()

    @classmethod
    def made(cls, address: str, options: Options) -> Connection:
        """The same from what is checked already. Raises ConnectError, Refused, AuthError."""
        self = cls.__new__(cls)
        self._stream = None
        Core.__init__(self, address, options)
        self._begin()
        return self

    def _begin(self) -> None:
        self._owed: deque[int] = deque()        # OKs awaited for each thing submitted
        self._exact = True                      # what follows a reply may be in another form
        self._stream = self._guard(lambda: Stream(self.address, self.timeout))
        _open.add(self)
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------ beginning

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
        """A response of which not a byte more is read."""
        deadline = self._deadline()
        while True:
            head = self._guard(lambda: self._socket.receive_exactly(8, deadline))
            size = self.frame_size(head)
            data = self._guard(partial(self._socket.receive_exactly, size, deadline))
            said = self.understand(int.from_bytes(head[4:], "big"), data)
            if said is not Said.HEARTBEAT:
                return data
            self._send(NOP)

    # ------------------------------------------------------------------ publishing

    def publish(self, topic: str, body: Body) -> None:
        """PUB; returns when nsqd has it. Raises BadName, BadMessage, Refused, ConnectError."""
        self.publish_all(Single(self.options, topic, body))

    def publish_many(self, topic: str, bodies: Iterable[Body], *, batch_bytes: int = BATCH_BYTES,
                     batch_rows: int = BATCH_ROWS, window: int = WINDOW) -> None:
        """MPUBs of up to batch_bytes and batch_rows, of which window are on their way at a time; returns when nsqd has
        all. bodies: any iterable, taken whole before anything is sent. Raises BadMessage or what the iterable raises
        before anything is sent, BadName, Refused, ConnectError."""
        self.publish_all(Many(self.options, topic, bodies, batch_bytes, batch_rows, window))

    def publish_deferred(self, topic: str, body: Body, delay_ms: int) -> None:
        """DPUB: to be delivered after delay_ms milliseconds. Raises as publish."""
        self.publish_deferred_many(topic, (body,), delay_ms)

    def publish_deferred_many(self, topic: str, bodies: Iterable[Body], delay_ms: int) -> None:
        """A DPUB for each body, sent without waiting for the answers between them. Raises as publish_many."""
        self.publish_all(Deferred(self.options, topic, bodies, delay_ms))

    def publish_all(self, publication: Publication) -> None:
        """Sends its commands and waits for their answers. Raises Refused, ConnectError."""
        for command, answers in publication:
            self.submit(command, answers)
            self.drain(publication.window - 1)
        self.drain(0)

    def submit(self, commands: bytes | bytearray | memoryview, answers: int = 1) -> None:
        """Sends commands that will be answered with so many OKs. Raises ConnectError."""
        self._send(commands)
        self._owed.append(answers)

    def drain(self, outstanding: int) -> int:
        """Waits until at most so many submissions are not answered; how many were answered now.
        Raises Refused, ConnectError."""
        done = 0
        while len(self._owed) > outstanding:
            self.expect_ok(self.reply())
            self._owed[0] -= 1
            if not self._owed[0]:
                self._owed.popleft()
                done += 1
        return done

    def ping(self) -> None:
        """Answers heartbeats that have come: for connections that publish rarely. Raises ConnectError, Refused."""
        self.pull()

    # ------------------------------------------------------------------ consuming

    def subscribe(self, topic: str, channel: str) -> None:
        """SUB: from here on the connection consumes; nothing comes before ready(). Raises BadName, Refused,
        ConnectError."""
        self._send(self.sub(topic, channel))
        self.expect_ok(self.reply())
        self.subscribed = True

    def ready(self, count: int) -> None:
        """RDY: how many messages may be in flight. Raises ConnectError."""
        self.post(self.rdy(count))

    def receive(self, timeout: float | None = None) -> list[Message]:
        """The messages that have come: at least one, but none where nothing comes within timeout seconds (None: waits).
        Heartbeats are answered. Raises ConnectError, Refused."""
        return self.collected() if self._wait_for_rows(timeout) else []

    def receive_batch(self, timeout: float | None = None) -> Batch | None:
        """The same as columns; None where nothing comes. Finish them by its finish(), or by finish_ids."""
        return Batch(self.inflow.columns(), self) if self._wait_for_rows(timeout) else None

    def collected(self) -> list[Message]:
        """The messages that pull() has brought."""
        found = messages(self.inflow.columns(), self)
        self.hold(message.id for message in found)
        return found

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
        """Until something can be read, or sent where something is unsent."""
        poll = select.poll()
        poll.register(self, select.POLLIN | (0 if self.flush() else select.POLLOUT))
        poll.poll(None if seconds is None else max(seconds * 1000, 1))

    # ------------------------------------------------------------------ without waiting

    def fileno(self) -> int:
        """For a selector; -1 when it is closed."""
        return -1 if self._stream is None else self._stream.fileno()

    @property
    def pending(self) -> bool:
        """Whether pull() has something to take that a selector does not see."""
        return self._socket.pending

    @property
    def unsent(self) -> bool:
        """Whether something posted waits for the socket."""
        return self._socket.unsent > 0

    def post(self, data: bytes) -> None:
        """Sends as much as the socket takes; flush() sends the rest. Raises ConnectError."""
        self._socket.push(data)
        self.flush()

    def flush(self) -> bool:
        """Whether everything that was posted is gone. Raises ConnectError."""
        return self._guard(self._socket.flush)

    def pull(self) -> int:
        """Takes what nsqd has sent into inflow; how many messages. Raises ConnectError; Refused for an error that ends
        the connection."""
        rows, taken = self.inflow.rows, 0
        while taken < PULL_BYTES or self.pending:
            count = self._guard(lambda: self._socket.receive(self.inflow, None))
            if not count:
                break
            taken += count
        self.flush()
        self._answer()
        return self.inflow.rows - rows

    def _answer(self) -> bool:
        """Deals with what is no message; whether nsqd waits to be closed."""
        waits = False
        while self.inflow.replies:
            said = self.understand(*self.inflow.replies.pop(0))
            if said is Said.HEARTBEAT:
                self.post(NOP)
            waits |= said is Said.CLOSING
        return waits

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Closes at once. What is in flight comes again after its time-out; leave() hands it back."""
        if self._stream is not None:
            self._stream.close()

    def leave(self) -> None:
        """Hands all messages that were not answered back to nsqd, also those still on their way; then closes."""
        if self.fileno() < 0:
            return
        try:
            if self.subscribed:
                self._hand_back_all()
            self._socket.close_gently(time.monotonic() + CLOSE_SECONDS)
        except (OSError, ClientError) as error:
            log.debug("%s: on leaving: %s", self.address, error)
        finally:
            self.close()

    def _hand_back_all(self) -> None:
        self.ready(0)
        self.post(self.hand_back() + CLS)
        deadline = time.monotonic() + CLOSE_SECONDS
        waits = False
        while not waits and time.monotonic() < deadline:
            self.post(self.hand_back())
            try:
                self._guard(lambda: self._socket.receive(self.inflow, time.monotonic() + 0.1))
            except NoAnswer:
                continue
            waits = self._answer()
        self.post(self.hand_back())
        self._guard(lambda: self._socket.send(b"", time.monotonic() + CLOSE_SECONDS))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def __del__(self) -> None:
        if self.fileno() >= 0:
            warnings.warn(f"unclosed connection to nsqd {self.address}", ResourceWarning, stacklevel=2, source=self)
            self.close()

    # ------------------------------------------------------------------ for all of it

    @property
    def _socket(self) -> Stream:
        if self._stream is None:
            raise Closed(f"{self.address}: the connection is closed")
        return self._stream

    def _deadline(self) -> float:
        return time.monotonic() + self.timeout

    def _send(self, data: bytes | bytearray | memoryview) -> None:
        self._guard(lambda: self._socket.send_all(data, self._deadline()))

    def reply(self) -> bytes:
        """The next answer, within the time-out; heartbeats are answered. Raises Refused, ConnectError."""
        deadline = self._deadline()
        while True:
            while self.inflow.replies:
                kind, data = self.inflow.replies.pop(0)
                said = self.understand(kind, data)
                if said is Said.HEARTBEAT:
                    self._send(NOP)
                elif said is not Said.LATE:
                    return data
            self._guard(lambda: self._socket.receive(self.inflow, deadline))

    def _guard(self, call: Callable[[], T]) -> T:
        """What the stream raises, in this module's terms."""
        try:
            return call()
        except ClientError:
            raise
        except (TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise NoAnswer(f"{self.address}: no answer in time") from None
        except EOFError:
            raise ConnectError(f"{self.address}: closed by nsqd") from None
        except (BadStream, CodecError) as error:
            raise ConnectError(f"{self.address}: {error}") from None
        except (OSError, ValueError) as error:
            if not isinstance(error, ssl.SSLError) and self._stream is not None and self.fileno() < 0:
                raise Closed(f"{self.address}: the connection is closed") from None
            raise ConnectError(f"{self.address}: {getattr(error, 'strerror', None) or error}") from None


def _after_fork() -> None:
    """A child's copies of connections are closed there: two processes that speak over one would confuse nsqd."""
    for connection in list(_open):
        connection.close()


os.register_at_fork(after_in_child=_after_fork)
