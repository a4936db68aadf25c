"""One V2 connection on an event loop: a protocol that reads into its own buffer and writes once per loop
iteration.

Each command that nsqd answers has a future; there are no tasks. A waiter may be cancelled: its answer is then
consumed in order and dropped.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import ParamSpec, Protocol, TypeVar, cast

from nsqc.client.address import is_path, split_address
from nsqc.client.core import CLOSE_SECONDS, CLS, ERROR, NOP, OK, Compress, Core, Reply, Secure, Step, tune
from nsqc.client.errors import ClientError, Closed, ConnectError, NoAnswer, Refused, WrongPort
from nsqc.client.frames import BadStream, Message, messages
from nsqc.client.log import Log
from nsqc.client.lookup import reason as text_of
from nsqc.client.lookup import with_port
from nsqc.client.options import KIB, MIB, Options
from nsqc.wire.codecs import Codec, CodecError

# ====================================================================== threads
# Blocking calls off the loop.

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns or raises the call's result. Unlike asyncio.to_thread, nothing waits for the thread when the loop or the
    process ends: an unresponsive nsqlookupd must not delay the end of a program."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if waiter.done():
            return
        # A future refuses the one, and closes the coroutines that await it by the other.
        if isinstance(error, (StopIteration, GeneratorExit)):
            waiter.set_exception(RuntimeError(f"the call raised {type(error).__name__}"))
        elif error is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = call(*args, **kwargs)
        except BaseException as caught:
            error = caught
        with suppress(RuntimeError):    # the loop may be closed by now
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, daemon=True, name="nsqc lookup").start()
    return await waiter


# ====================================================================== pulse
# Keeps consumers' connections alive while their event loop is blocked: a thread answers for the loop.

CARE_SECONDS = 0.25
# A loop that has not run for this long is blocked. nsqd waits for two heartbeat intervals of at least a second.
BLOCKED_SECONDS = 1.0


class Watched(Protocol):
    """A connection of a consumer."""

    loop_ran_at: float      # when its loop last ran (monotonic)

    def pulse(self, now: float) -> None:
        """Sends heartbeat replies to nsqd. Called on the thread."""


class Pulse:
    """One thread for all connections of the process, while there are any."""

    def __init__(self) -> None:
        self._watched: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_running = False

    def watch(self, connection: Watched) -> None:
        """Adds a connection until it is forgotten."""
        with self._lock:
            self._watched.add(connection)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="nsqc pulse", daemon=True).start()

    def unwatch(self, connection: Watched) -> None:
        """Removes a connection."""
        with self._lock:
            self._watched.discard(connection)

    def _run(self) -> None:
        while True:
            time.sleep(CARE_SECONDS)
            with self._lock:
                watched = list(self._watched)
                if not watched:
                    self._is_running = False
                    return
            now = time.monotonic()
            for connection in watched:
                if now - connection.loop_ran_at > BLOCKED_SECONDS:
                    connection.pulse(now)


pulse = Pulse()


def _after_fork() -> None:
    """In a forked child: the thread does not exist, and the connections are the parent's."""
    pulse.__init__()    # type: ignore[misc]    # others have imported the object


os.register_at_fork(after_in_child=_after_fork)


# ====================================================================== connection

log = Log("nsqc.client")

AREA_BYTES = 256 * KIB          # read at a time
FLUSH_BYTES = 256 * KIB         # buffered commands at which they are sent before the iteration ends
WRITE_BYTES = MIB               # buffered by the transport before publishers wait
DECODE_BYTES = MIB              # decoded before the loop regains control


class Bystander(ConnectError):
    """The connection ended because nsqd refused another publisher's command: send this one again at once."""


class Connection(Core, asyncio.BufferedProtocol):
    """on_rows: called when messages have arrived. on_end: called once, with the reason, when the connection ends."""

    def __init__(self, address: str, options: Options, on_rows: Callable[[], None] | None = None,
                 on_end: Callable[[Connection, Exception], None] | None = None):
        super().__init__(address, options)
        self.loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._on_rows, self._on_end = on_rows, on_end
        self._transport: asyncio.Transport | None = None
        self._area = memoryview(bytearray(AREA_BYTES))
        self._codec: Codec | None = None
        self._greeted = False
        self._raw = bytearray()                 # received during the greeting, not parsed yet
        self._owed: deque[asyncio.Future[bytes] | None] = deque()   # None: shares the next future
        self._since = 0.0                       # start of waiting for the next answer
        self._timer: asyncio.TimerHandle | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flush_due = False
        self.paused = False                     # the transport's buffer is full: await room() before sending more
        self._waiting: list[asyncio.Future[None]] = []      # see _change
        self._closing = False                   # nsqd has answered CLS
        self._leaving = False
        self._lost = False                      # connection_lost() was called
        self.error: Exception | None = None     # why it ended
        self.loop_ran_at = math.inf             # see pulse()
        self._touch_limit = 0.0
        self._write_lock = threading.Lock()     # of the socket, which pulse() writes to as well
        self._own_socket: int | None = None     # a descriptor that only pulse() uses

    # ------------------------------------------------------------------ greeting

    async def open(self) -> Connection:
        """Connects and identifies, within the timeout. Raises ConnectError, Refused, AuthError."""
        try:
            async with asyncio.timeout(self.timeout):
                await self._dial()
                await self._greet()
        except TimeoutError:
            self.abort(NoAnswer(f"{self.address}: no answer in time"))
            raise NoAnswer(f"{self.address}: no answer in time") from None
        except ClientError as error:
            self.abort(error)
            if isinstance(error, WrongPort):
                raise await in_thread(with_port, self.address, error, self.timeout) from None
            raise
        except (OSError, ValueError) as error:
            self.abort(Closed(f"{self.address}: the connection is closed"))
            raise self.failed(error) from None
        except BaseException:
            self.abort(Closed(f"{self.address}: the connection is closed"))
            raise
        return self

    async def _dial(self) -> None:
        if is_path(self.address):
            await self.loop.create_unix_connection(lambda: self, self.address)
            return
        host, port = split_address(self.address)
        await self.loop.create_connection(lambda: self, host, port)

    async def _greet(self) -> None:
        steps = self.greeting()
        try:
            step = next(steps)
            while True:
                await self._take_step(step)
                step = steps.send(await self._reply())
        except StopIteration:
            pass
        self._greeted = True
        rest, self._raw = bytes(self._raw), bytearray()
        self._take_in(rest)
        if self.error is not None:
            raise self.error

    async def _take_step(self, step: Step) -> None:
        if isinstance(step, Secure):
            if self._raw:
                raise ConnectError(f"{self.address}: unencrypted bytes instead of TLS")
            transport = await self.loop.start_tls(self._live_transport, self, step.context,
                                                  server_hostname=step.server_name)
            if transport is None:
                raise self.ended()
            self._transport = transport
            transport.set_write_buffer_limits(WRITE_BYTES)
        elif isinstance(step, Compress):
            self._codec = step.codec
            rest, self._raw = bytes(self._raw), bytearray()
            self._take_in(rest)
        else:
            self.post(step.data)

    async def _reply(self) -> bytes:
        """The next reply during the greeting."""
        while True:
            if self.error is not None:
                raise self.error
            while len(self._raw) >= 8:
                size = self.frame_size(bytes(self._raw[:8]))
                if len(self._raw) < 8 + size:
                    break
                kind, data = int.from_bytes(self._raw[4:8], "big"), bytes(self._raw[8:8 + size])
                del self._raw[:8 + size]
                if self.classify(kind, data) is not Reply.HEARTBEAT:
                    return data
                self.post(NOP)
            await self._change()

    @property
    def _live_transport(self) -> asyncio.Transport:
        if self._transport is None or self.error is not None:
            raise self.error or Closed(f"{self.address}: the connection is closed")
        return self._transport

    @property
    def alive(self) -> bool:
        """Whether the connection is usable."""
        return self.error is None

    # ------------------------------------------------------------------ callbacks of the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called again when TLS starts."""
        stream = cast(asyncio.Transport, transport)
        if self.error is not None:
            stream.abort()
            return
        self._transport = stream
        stream.set_write_buffer_limits(WRITE_BYTES)
        sock = stream.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            tune(sock)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer to read into."""
        return self._area

    def buffer_updated(self, count: int) -> None:
        """Handles count received bytes."""
        self._take_in(self._area[:count])

    def eof_received(self) -> None:
        """Does nothing: the transport then closes itself."""

    def connection_lost(self, reason: Exception | None) -> None:
        """Handles the end of the connection."""
        self._lost = True
        if isinstance(reason, ssl.SSLError):
            self._end(self.failed(reason))
        else:
            self._end(self.ended(bytes(self._raw), "closed by nsqd" if reason is None else text_of(reason)))
        self._changed()

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self.paused = True

    def resume_writing(self) -> None:
        """The transport accepts more."""
        self.paused = False
        self._changed()

    # ------------------------------------------------------------------ input

    def _take_in(self, data: bytes | memoryview) -> None:
        """Parses received bytes. An error in them ends the connection."""
        if self.error is not None:
            return
        try:
            if self._codec is not None:
                self._codec.put(bytes(data))
                self._decode()
                return
            self._take_plain(data)
        except (BadStream, CodecError) as error:
            self.abort(ConnectError(f"{self.address}: {error}"))
        except ClientError as error:
            self.abort(error)
        except MemoryError:
            self.abort(ConnectError(f"{self.address}: out of memory"))

    def _decode(self) -> None:
        """Decodes a limited amount at once, regardless of the input's size."""
        decoded = 0
        while self._codec is not None and (piece := self._codec.get()):
            self._take_plain(piece)
            decoded += len(piece)
            if decoded >= DECODE_BYTES and self.error is None:
                self._live_transport.pause_reading()
                self.loop.call_soon(self._resume_decoding)
                return

    def _resume_decoding(self) -> None:
        if self.error is None:
            self._live_transport.resume_reading()
            self._take_in(b"")

    def _take_plain(self, data: bytes | memoryview) -> None:
        if not self._greeted:
            self._raw += data
            self._changed()
            return
        rows = self.inflow.rows
        self.inflow.feed(data)
        if self.inflow.replies:
            replies = self.inflow.replies[:]
            self.inflow.replies.clear()
            for kind, text in replies:
                self._take_reply(kind, text)
        if self.inflow.rows > rows and self._on_rows is not None:
            self._on_rows()

    def _take_reply(self, kind: int, data: bytes) -> None:
        if kind != ERROR and data == OK:
            reply = Reply.ANSWER    # the most frequent kind
        else:
            try:
                reply = self.classify(kind, data)
            except Refused as error:
                self._refused(error)
                return
        if reply is Reply.ANSWER:
            if not self._owed:
                raise ConnectError(f"{self.address}: answers {data[:60]!r} without a command")
            self._since = self.loop.time()
            waiter = self._owed.popleft()
            if waiter is not None and not waiter.done():
                waiter.set_result(data)
            if self._leaving:
                self._changed()
        elif reply is Reply.HEARTBEAT:
            self.post(NOP)
        elif reply is Reply.CLOSING:
            self._closing = True
            self._changed()

    def _refused(self, error: Refused) -> None:
        """Raises the error in that command's waiter, and ends the connection, which nsqd closes."""
        refused = next((waiter for waiter in self._owed if waiter is not None), None)
        if refused is None:
            self.abort(error)
            return
        if not refused.done():
            refused.set_exception(error)
        self.abort(Bystander(f"{self.address}: closed after {error.text!r}, the answer to another command"))

    # ------------------------------------------------------------------ output

    def post(self, data: bytes) -> None:
        """Sends bytes at the end of this loop iteration. Thread-safe: messages may be answered in worker threads.
        Raises ConnectError."""
        if self.error is not None:
            raise self._copy(self.error)
        if get_ident() != self._thread:
            self.loop.call_soon_threadsafe(self._post_from_thread, data)
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= FLUSH_BYTES:
            self.flush()
        elif not self._flush_due:
            self._flush_due = True
            self.loop.call_soon(self._flush_iteration)

    def _post_from_thread(self, data: bytes) -> None:
        if self.error is None:
            self.post(data)

    def flush(self) -> None:
        """Hands everything posted to the transport."""
        if self._out and self._transport is not None and self.error is None:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out, self._out_bytes = [], 0
            with self._write_lock:
                self._transport.write(data if self._codec is None or not data else self._codec.pack(data))

    def _flush_iteration(self) -> None:
        self._flush_due = False
        self.flush()

    async def room(self) -> None:
        """Waits while the transport's buffer is full. Raises ConnectError."""
        while self.paused and self.error is None:
            await self._change()
        if self.error is not None:
            raise self._copy(self.error)

    def submit(self, commands: bytes, answers: int = 1) -> asyncio.Future[bytes]:
        """Sends commands that nsqd answers with this many OKs; the future gets the last of them. Raises
        ConnectError."""
        self.post(commands)
        waiter: asyncio.Future[bytes] = self.loop.create_future()
        if not self._owed:
            self._since = self.loop.time()
            if self._timer is None:
                self._timer = self.loop.call_later(self.timeout, self._check_timeout)
        if answers > 1:
            self._owed.extend([None] * (answers - 1))
        self._owed.append(waiter)
        return waiter

    def _check_timeout(self) -> None:
        """Ends the connection if an answer is overdue; one timer serves all of them."""
        self._timer = None
        if self.error is not None or not self._owed:
            return
        left = self._since + self.timeout - self.loop.time()
        if left <= 0:
            self.abort(NoAnswer(f"{self.address}: no answer in time"))
        else:
            self._timer = self.loop.call_later(left, self._check_timeout)

    # ------------------------------------------------------------------ consuming

    async def subscribe(self, topic: str, channel: str) -> None:
        """SUB. Raises BadName, Refused, ConnectError."""
        self.expect_ok(await self.submit(self.sub(topic, channel)))
        self.subscribed = True

    def ready(self, count: int, backs_off: bool = False) -> None:
        """RDY. Raises ConnectError.
        backs_off: tells nsqc's statistics that it is low because of failures."""
        self.post(self.rdy(count, backs_off))

    def collected(self) -> list[Message]:
        """The messages received."""
        received = messages(self.inflow.columns(), self)
        self.hold(message.id for message in received)
        return received

    # ------------------------------------------------------------------ during a blocked loop

    def look_after(self, now: float, touch_limit: float) -> None:
        """Touches messages; the loop calls it often. Raises ConnectError."""
        if self.loop_ran_at == math.inf and self.options.tls is None and self._codec is None:
            self._own_socket = os.dup(self._live_transport.get_extra_info("socket").fileno())
            pulse.watch(self)
        self.loop_ran_at, self._touch_limit = now, touch_limit
        self.keep_alive(now, touch_limit)

    def pulse(self, now: float) -> None:
        """Sends the loop's messages from another thread: NOP, which works as a heartbeat reply, and TOUCH. Not over
        TLS and codecs, whose state only the loop may use."""
        with self._write_lock:
            if self._own_socket is None or self._transport is None or self._transport.get_write_buffer_size():
                return      # closed, or unsent bytes must go first
            data = NOP + self.due_touches(now, self._touch_limit)
            try:
                sent = os.write(self._own_socket, data)
            except OSError:
                return      # the loop will notice
        if sent < len(data):
            self.loop.call_soon_threadsafe(self.abort, ConnectError(f"{self.address}: nsqd reads nothing"))

    def _end_pulse(self) -> None:
        pulse.unwatch(self)
        with self._write_lock:
            if self._own_socket is not None:
                os.close(self._own_socket)
                self._own_socket = None

    def __del__(self) -> None:
        if getattr(self, "_own_socket", None) is not None:
            self._end_pulse()

    # ------------------------------------------------------------------ waiting

    async def _change(self) -> None:
        """Waits for a change: bytes during the greeting, room to write, CLOSE_WAIT, the end of the connection."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    # ------------------------------------------------------------------ closing

    def abort(self, error: Exception | None = None) -> None:
        """Closes at once; waiters get the error."""
        self._end(error or Closed(f"{self.address}: the connection is closed"))
        if self._transport is not None:
            self._transport.abort()

    def _end(self, error: Exception) -> None:
        if self.error is not None:
            return
        self.error = error
        self._end_pulse()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        owed, self._owed = self._owed, deque()
        for waiter in owed:
            if waiter is not None and not waiter.done():
                waiter.set_exception(self._copy(error))
        self._out, self._out_bytes = [], 0
        self._changed()
        if self._on_end is not None:
            self._on_end(self, error)

    @staticmethod
    def _copy(error: Exception) -> Exception:
        """A copy for each waiter, which adds its own traceback."""
        return type(error)(*error.args)

    async def leave(self, patience: float) -> None:
        """Requeues all unanswered messages, including those still being received; waits for outstanding answers, for
        patience seconds at most; then closes."""
        self._on_end = None
        self._leaving = True
        try:
            if self.subscribed:
                async with asyncio.timeout(2 * CLOSE_SECONDS):
                    await self._requeue_all()
            async with asyncio.timeout(patience):
                while self.error is None and any(waiter is not None and not waiter.done() for waiter in self._owed):
                    await self._change()
            # Without the answers of cancelled commands: nsqd may have stopped answering.
            if self.error is None and not self._owed:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._close_gently()
        except (TimeoutError, OSError, ClientError) as error:
            log.debug("%s: while leaving: %s", self.address, error)
        finally:
            self.abort()

    async def _requeue_all(self) -> None:
        self.ready(0)
        self.post(self.requeue_unanswered() + CLS)
        while not self._closing and self.error is None:
            self._on_rows = self._changed
            await self._change()
            if requeues := self.requeue_unanswered():
                self.post(requeues)
        self.post(self.requeue_unanswered())

    async def _close_gently(self) -> None:
        """Sends EOF and waits until nsqd has read everything and closes."""
        self.flush()
        transport = self._live_transport
        if transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()
        while not self._lost:
            await self._change()
