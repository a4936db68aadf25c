"""One V2 connection on an event loop: a protocol that reads into an area of its own, and writes once an iteration.

Commands that are answered have a future each; no task exists for any of it. Whoever waits for an answer may be
cancelled: the answer is then taken in its turn, and nobody is told.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any

from nsqc.client.address import is_path, split_address
from nsqc.client.core import CLOSE_SECONDS, CLS, ERROR, NOP, OK, Compress, Core, Said, Secure, Step
from nsqc.client.errors import ClientError, Closed, ConnectError, NoAnswer, Refused
from nsqc.client.inflow import BadStream
from nsqc.client.message import Message, messages
from nsqc.client.options import KIB, MIB, Options
from nsqc.client.stream import tune
from nsqc.wire.codec import Codec, CodecError

log = logging.getLogger("nsqc.client")

AREA_BYTES = 256 * KIB          # read at a time
FLUSH_BYTES = 256 * KIB         # collected commands that do not wait for the end of the iteration
WRITE_BYTES = MIB               # that the transport keeps before publishers wait
DECODE_BYTES = MIB              # decoded before others have their turn


class Caught(ConnectError):
    """The connection ended because nsqd refused what somebody else had sent over it: this may be sent again at once."""


class Connection(Core, asyncio.BufferedProtocol):
    """on_rows: called when messages have come. on_end: called once, with the reason, when the connection is no more."""

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
        self._raw = bytearray()                 # what has come within the greeting and was not taken yet
        self._owed: deque[asyncio.Future[bytes] | None] = deque()   # None: of the same as the next one
        self._since = 0.0                       # when the answer that is due began to be due
        self._watch: asyncio.TimerHandle | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flush_due = False
        self.paused = False                     # the transport has enough: await room() before sending more
        self._waiting: list[asyncio.Future[None]] = []      # for something to happen: see _change
        self._closing_said = False              # nsqd has answered CLS
        self._leaving = False
        self._gone = False                      # connection_lost
        self.error: Exception | None = None     # why it is no more

    # ------------------------------------------------------------------ beginning

    async def open(self) -> Connection:
        """Connects and shakes hands, within the time-out. Raises ConnectError, Refused, AuthError."""
        try:
            async with asyncio.timeout(self.timeout):
                await self._dial()
                await self._greet()
        except TimeoutError:
            self.abort(NoAnswer(f"{self.address}: no answer in time"))
            raise NoAnswer(f"{self.address}: no answer in time") from None
        except ClientError as error:
            self.abort(error)
            raise
        except (OSError, ValueError) as error:
            self.abort(Closed(f"{self.address}: the connection is closed"))
            raise ConnectError(f"{self.address}: {getattr(error, 'strerror', None) or error}") from None
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
                raise ConnectError(f"{self.address}: bytes that are not encrypted where TLS was due")
            transport = await self.loop.start_tls(self._made, self, step.context, server_hostname=step.server_name)
            if transport is None:
                raise ConnectError(f"{self.address}: closed by nsqd")
            self._transport = transport
            transport.set_write_buffer_limits(WRITE_BYTES)
        elif isinstance(step, Compress):
            self._codec = step.codec
            rest, self._raw = bytes(self._raw), bytearray()
            self._take_in(rest)
        else:
            self.post(step.data)

    async def _reply(self) -> bytes:
        """The next one within the greeting."""
        while True:
            if self.error is not None:
                raise self.error
            while len(self._raw) >= 8:
                size = self.frame_size(bytes(self._raw[:8]))
                if len(self._raw) < 8 + size:
                    break
                kind, data = int.from_bytes(self._raw[4:8], "big"), bytes(self._raw[8:8 + size])
                del self._raw[:8 + size]
                if self.understand(kind, data) is not Said.HEARTBEAT:
                    return data
                self.post(NOP)
            await self._change()

    @property
    def _made(self) -> asyncio.Transport:
        if self._transport is None or self.error is not None:
            raise self.error or Closed(f"{self.address}: the connection is closed")
        return self._transport

    @property
    def alive(self) -> bool:
        """Whether it can be used."""
        return self.error is None

    # ------------------------------------------------------------------ the loop calls

    def connection_made(self, transport: Any) -> None:
        """Again where TLS begins."""
        if self.error is not None:
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(WRITE_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            tune(sock)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to."""
        return self._area

    def buffer_updated(self, count: int) -> None:
        """So many bytes have come."""
        self._take_in(self._area[:count])

    def eof_received(self) -> None:
        """The transport closes itself then."""

    def connection_lost(self, reason: Exception | None) -> None:
        """The end."""
        self._gone = True
        text = getattr(reason, "strerror", None) or reason or "closed by nsqd"
        self._end(ConnectError(f"{self.address}: {text}"))
        self._changed()

    def pause_writing(self) -> None:
        """The transport has enough for now."""
        self.paused = True

    def resume_writing(self) -> None:
        """And takes more."""
        self.paused = False
        self._changed()

    # ------------------------------------------------------------------ in

    def _take_in(self, data: bytes | memoryview) -> None:
        """Bytes as they have come. What is wrong with them ends the connection."""
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
        """So much at a time, however little input it was."""
        taken = 0
        while self._codec is not None and (piece := self._codec.get()):
            self._take_plain(piece)
            taken += len(piece)
            if taken >= DECODE_BYTES and self.error is None:
                self._made.pause_reading()
                self.loop.call_soon(self._go_on)
                return

    def _go_on(self) -> None:
        if self.error is None:
            self._made.resume_reading()
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
            said = Said.ANSWER      # most are
        else:
            try:
                said = self.understand(kind, data)
            except Refused as error:
                self._refused(error)
                return
        if said is Said.ANSWER:
            if not self._owed:
                raise ConnectError(f"{self.address}: answers {data[:60]!r} where nothing was due")
            self._since = self.loop.time()
            waiter = self._owed.popleft()
            if waiter is not None and not waiter.done():
                waiter.set_result(data)
            if self._leaving:
                self._changed()
        elif said is Said.HEARTBEAT:
            self.post(NOP)
        elif said is Said.CLOSING:
            self._closing_said = True
            self._changed()

    def _refused(self, error: Refused) -> None:
        """Whoever waits for the answer is told; the connection is over then, for nsqd closes it."""
        whose = next((waiter for waiter in self._owed if waiter is not None), None)
        if whose is None:
            self.abort(error)
            return
        if not whose.done():
            whose.set_exception(error)
        self.abort(Caught(f"{self.address}: closed because of {error.text!r}, which another command was answered with"))

    # ------------------------------------------------------------------ out

    def post(self, data: bytes) -> None:
        """Sends it at the end of this iteration of the loop. Other threads may do so, too: those in which messages are
        worked on. Raises ConnectError."""
        if self.error is not None:
            raise self._fresh(self.error)
        if get_ident() != self._thread:
            self.loop.call_soon_threadsafe(self._post_late, data)
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= FLUSH_BYTES:
            self.flush()
        elif not self._flush_due:
            self._flush_due = True
            self.loop.call_soon(self._flush_late)

    def _post_late(self, data: bytes) -> None:
        if self.error is None:
            self.post(data)

    def flush(self) -> None:
        """Gives everything that was posted to the transport."""
        if self._out and self._transport is not None and self.error is None:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out, self._out_bytes = [], 0
            self._transport.write(data if self._codec is None or not data else self._codec.pack(data))

    def _flush_late(self) -> None:
        self._flush_due = False
        self.flush()

    async def room(self) -> None:
        """Waits while the transport has enough. Raises ConnectError."""
        while self.paused and self.error is None:
            await self._change()
        if self.error is not None:
            raise self._fresh(self.error)

    def submit(self, commands: bytes, answers: int = 1) -> asyncio.Future[bytes]:
        """Sends commands that will be answered with so many OKs; the future has the last of them. Raises
        ConnectError."""
        self.post(commands)
        waiter: asyncio.Future[bytes] = self.loop.create_future()
        if not self._owed:
            self._since = self.loop.time()
            if self._watch is None:
                self._watch = self.loop.call_later(self.timeout, self._look)
        if answers > 1:
            self._owed.extend([None] * (answers - 1))
        self._owed.append(waiter)
        return waiter

    def _look(self) -> None:
        """Whether an answer is due for too long; one timer for all of them."""
        self._watch = None
        if self.error is not None or not self._owed:
            return
        left = self._since + self.timeout - self.loop.time()
        if left <= 0:
            self.abort(NoAnswer(f"{self.address}: no answer in time"))
        else:
            self._watch = self.loop.call_later(left, self._look)

    # ------------------------------------------------------------------ consuming

    async def subscribe(self, topic: str, channel: str) -> None:
        """SUB. Raises BadName, Refused, ConnectError."""
        self.expect_ok(await self.submit(self.sub(topic, channel)))
        self.subscribed = True

    def ready(self, count: int) -> None:
        """RDY. Raises ConnectError."""
        self.post(self.rdy(count))

    def collected(self) -> list[Message]:
        """The messages that have come."""
        found = messages(self.inflow.columns(), self)
        self.hold(message.id for message in found)
        return found

    # ------------------------------------------------------------------ waiting

    async def _change(self) -> None:
        """Until something has changed: bytes within the greeting, room to write, nsqd is closing, the end."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    # ------------------------------------------------------------------ the end

    def abort(self, error: Exception | None = None) -> None:
        """Closes at once; what waits for answers gets the error."""
        self._end(error or Closed(f"{self.address}: the connection is closed"))
        if self._transport is not None:
            self._transport.abort()

    def _end(self, error: Exception) -> None:
        if self.error is not None:
            return
        self.error = error
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        owed, self._owed = self._owed, deque()
        for waiter in owed:
            if waiter is not None and not waiter.done():
                waiter.set_exception(self._fresh(error))
        self._out, self._out_bytes = [], 0
        self._changed()
        if self._on_end is not None:
            self._on_end(self, error)

    @staticmethod
    def _fresh(error: Exception) -> Exception:
        """An exception of its own for each of those who get it: a traceback is one's own."""
        return type(error)(*error.args)

    async def leave(self, patience: float) -> None:
        """Hands all messages that were not answered back to nsqd, also those still on their way; waits for answers that
        are due, for patience seconds at most; then closes."""
        self._on_end = None
        self._leaving = True
        try:
            if self.subscribed:
                async with asyncio.timeout(2 * CLOSE_SECONDS):
                    await self._hand_back_all()
            async with asyncio.timeout(patience):
                while self._owed and self.error is None:
                    await self._change()
            if self.error is None:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._close_gently()
        except (TimeoutError, OSError, ClientError) as error:
            log.debug("%s: on leaving: %s", self.address, error)
        finally:
            self.abort()

    async def _hand_back_all(self) -> None:
        self.ready(0)
        self.post(self.hand_back() + CLS)
        while not self._closing_said and self.error is None:
            self._on_rows = self._changed
            await self._change()
            if back := self.hand_back():
                self.post(back)
        self.post(self.hand_back())

    async def _close_gently(self) -> None:
        """Says that nothing more comes, and waits until nsqd has read everything and closes."""
        self.flush()
        transport = self._made
        if transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()
        while not self._gone:
            await self._change()
