"""Requests to answers, in the order of the requests.

An answer that has to wait (a pause that goes to disk first, a profile), or a client that does not read its answers,
blocks the connection: input that has arrived waits as bytes, and at most one more read is accepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, cast

from nsqc.httpd.reply import ApiError, Feeder, Pieces, Reply, Stream, refusal, v1_error
from nsqc.loop.slow import Steps
from nsqc.loop.uv import span_began, span_ended

if TYPE_CHECKING:
    from nsqc.httpd.connection import Connection
    from nsqc.httpd.reply import Request
    from nsqc.httpd.site import ServerState, Site


# ====================================================================== writer
# The sending end of a connection: one write per loop iteration, and an end that loses no answer.

# Sends collected answers before the iteration ends once they exceed this.
_FLUSH_BYTES = 64 * 1024
# Seconds that a connection with unread input stays half open at its end, so that its client can read the answer.
_LINGER_SECONDS = 0.5
# Timeout of a closed connection whose client accepts nothing: by then its network has resent lost packets.
_GIVE_UP_SECONDS = 5.0


class Writer:
    """Collects answers, sends them, closes the transport."""

    __slots__ = ("_giving_up", "_loop", "_out_bytes", "_tls", "eof", "out", "transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, tls: bool) -> None:
        self.transport = transport
        self.out: list[bytes] = []              # this iteration's answers
        self.eof = False                        # the client sends no more
        self._out_bytes = 0                     # of out, excluding replies to plain publishes
        self._loop = loop
        self._tls = tls
        self._giving_up: asyncio.TimerHandle | None = None  # closed, but the client has not read everything

    def add(self, data: bytes, parts: list[bytes]) -> None:
        """Adds an answer; parts: the rest of it."""
        self.out.append(data)
        self._out_bytes += len(data)
        if parts:
            self.out += parts
            self._out_bytes += sum(map(len, parts))
        if self._out_bytes > _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Passes the collected answers to the transport."""
        out = self.out
        if out and not self.transport.is_closing():
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()
        self._out_bytes = 0

    def unsent(self) -> int:
        """Bytes that the kernel has not accepted yet."""
        return self.transport.get_write_buffer_size()

    def end(self, unread: bool) -> None:
        """Closes after the collected answers; unread: the client may still be sending."""
        self.flush()
        if self.transport.is_closing():
            return
        if unread and not self.eof and self.transport.can_write_eof():
            # Closing with unread input would reset the connection, and the client would lose the answer.
            self.transport.write_eof()
            self._loop.call_later(_LINGER_SECONDS, self.close)
            self.transport.resume_reading()
        else:
            self.close()

    def close(self) -> None:
        """Closes the transport when it is empty, or its client has accepted nothing for too long."""
        self.transport.close()
        left = self.unsent()
        # Under TLS the client also has to confirm the end.
        if (left or self._tls) and self._giving_up is None:
            self._giving_up = self._loop.call_later(_GIVE_UP_SECONDS, self._give_up, left)

    def closed(self) -> None:
        """The transport has closed."""
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _give_up(self, before: int) -> None:
        left = self.unsent()
        if left < before:
            self._giving_up = self._loop.call_later(_GIVE_UP_SECONDS, self._give_up, left)
        else:
            self._giving_up = None
            self.transport.abort()


# ====================================================================== pipeline

# A longer answer is sent by worker threads.
_LONG_BYTES = 256 * 1024
_PATIENCE_S = 5.0


class Pipeline:
    """Calls handlers one at a time and sends their results. httpd/publish.py adds publishes."""

    __slots__ = ("_app", "_commit", "_connection", "_feeder", "_next", "_paced", "_request", "_state", "_write_paused",
                 "blocked", "closing", "ended", "unread", "writer")

    def __init__(self, app: Site, state: ServerState, writer: Writer, connection: Connection) -> None:
        self.writer = writer
        self.blocked = False                    # an answer waits, or the client does not read
        self.closing = False                    # takes no more requests, ends after the pending answers
        self.ended = False                      # the last answer has been sent
        self.unread = False                     # closes before the client has sent everything
        self._app = app
        self._state = state
        self._connection = connection
        self._write_paused = False
        self._request: Request | None = None    # its handler is waiting
        self._feeder: Feeder | None = None      # sends the body of its answer
        self._commit = False                    # a plain publish is being written
        self._paced = False                     # the client creates topics or channels too fast, and must wait
        self._next: Request | None = None       # arrived after the share of its iteration was used up

    # ------------------------------------------------------------------ requests

    def publish(self, name: bytes, body: bytes) -> bool:
        """Publishes a plain message and answers, now or once it is written; False: the client needs handle()."""
        return False

    def handle(self, request: Request) -> None:
        """Answers a request, now or in a later iteration. Only while not blocked."""
        if self._app.share.over():
            self._next = request
            self.rest()
        else:
            self._answer(request)

    def _answer(self, request: Request) -> None:
        route = request.route
        began = span_began()
        if self._state.closing:
            request.drop()      # it arrived, or is next, after the others were notified
        try:
            data = route.handler(self._app, request)
            span_ended(began, "HTTP", request)
            if hasattr(data, "__await__"):
                # Accept one more read to notice when the client leaves.
                self._request = request
                self.blocked = True
                work = Steps(cast("Coroutine[object, object, object]", data), "HTTP", request)
                task = self._state.loop.create_task(work)
                task.add_done_callback(self._handled)
                return
            reply = data if isinstance(data, Reply) else route.reply(data)
        except Exception as error:
            reply = self._failed(route.error, error)
        self._finish(request, reply)

    def interim(self, line: bytes) -> None:
        """Sends an interim line before an answer. Only while not blocked."""
        self.writer.out.append(line)

    def is_busy(self) -> bool:
        """Whether an answer is due."""
        return self._commit or self._request is not None or self._next is not None

    def drop(self) -> None:
        """Notifies a waiting handler that its answer is no longer needed."""
        if self._request is not None:
            self._request.drop()

    # ------------------------------------------------------------------ flow

    def pause(self) -> None:
        """The client does not read its answers: stops reading its input."""
        self._write_paused = self.blocked = True
        if self._feeder is not None:
            self._feeder.paused = True
        self._app.untaken.add(self)

    def resume(self) -> None:
        """The client reads again."""
        self._write_paused = False
        if self._feeder is not None:
            self._feeder.resume()
            self._app.untaken.add(self)
            return
        self._app.untaken.discard(self)
        if not self._waits():
            self._unblock()

    def end(self) -> None:
        """Closes the connection after the last answer."""
        self.closing = self.ended = True
        self._next = None
        self.writer.end(self.unread)

    def abandon(self) -> None:
        """The connection is gone. Running handlers still finish."""
        self.closing = self.ended = True
        self._next = None
        self._app.untaken.discard(self)
        self.drop()
        if self._feeder is not None:
            self._feeder.stop()
            self._feeder = None
        self._request = None
        self._commit = False

    def _waits(self) -> bool:
        """Whether it is blocked by something that will unblock it."""
        return self._write_paused or self._request is not None or self._commit or self._paced

    def pace(self, seconds: float) -> None:
        """Sends the answers so far, and takes no more requests for a while."""
        self._paced = self.blocked = True
        self.writer.flush()
        self._state.loop.call_later(seconds, self._pace_over)

    def _pace_over(self) -> None:
        self._paced = False
        self._go_on()

    def _unblock(self) -> None:
        self.blocked = False
        if self._next is not None and self._app.share.over():
            self.rest()
        elif self._next is not None:
            request, self._next = self._next, None
            self._answer(request)
        self.writer.flush()
        self._connection.unblocked()

    def untaken(self) -> int:
        """Bytes of answers in memory that the client has not accepted."""
        return self.writer.unsent() + (0 if self._feeder is None else self._feeder.in_memory())

    def give_up(self) -> None:
        """Drops the connection, to free the memory of its answers."""
        self._app.log.warn("%s reads no answers, and unread answers use too much memory: closing", self._connection)
        self.closing = self.ended = True
        self.writer.transport.abort()

    def rest(self) -> None:
        """The requests' share of this iteration is used up: the rest waits for the next one."""
        self.blocked = True
        self._app.share.add(self._go_on)

    def _go_on(self) -> None:
        if self.blocked and not (self._waits() or self.ended):
            self._unblock()

    # ------------------------------------------------------------------ answers

    def _handled(self, task: asyncio.Task[object]) -> None:
        """A waiting handler has finished."""
        request = self._request
        if request is None:
            # The client has left. The work is done, but log a failure.
            if not task.cancelled() and (lost := task.exception()) is not None:
                self._failed(v1_error, lost)
            return
        self._request = None
        try:
            data = task.result()
            reply = data if isinstance(data, Reply) else request.route.reply(data)
        except Exception as error:
            reply = self._failed(request.route.error, error)
        self._finish(request, reply)
        if not self._waits():
            self._unblock()

    def _fed(self, task: asyncio.Task[None]) -> None:
        """A streamed body has been sent, or cannot be."""
        error = None if task.cancelled() else task.exception()
        request = self._request
        if error is not None:
            self._app.log.error("cannot send the rest of an answer - %s", error)
        if request is None:
            return  # the client has left
        self._request = self._feeder = None
        if self._write_paused:
            self._app.untaken.add(self)
        else:
            self._app.untaken.discard(self)
        if error is not None:
            # The client notices that the body is shorter than announced.
            self.closing = self.ended = True
            self.writer.transport.abort()
            return
        if not request.keep_alive:
            self.end()
        if not self._waits():
            self._unblock()

    def _failed(self, form: Callable[[int, str], Reply], error: BaseException) -> Reply:
        """The answer to an exception. Names a refusal by the system, such as no file for a new topic."""
        if isinstance(error, ApiError):
            return form(error.status, error.text)
        self._app.log.error("panic in HTTP handler - %r", error)
        if isinstance(error, OSError) and error.errno:
            return form(503, refusal(error.errno))
        return v1_error(500, "INTERNAL_ERROR")

    def _finish(self, request: Request, reply: Reply) -> None:
        if request.route.logged:
            self._app.log_request(request, reply.status)
        stays = request.keep_alive and not self._state.closing
        if request.http10 and isinstance(reply.stream, Pieces):
            stays = reply.stream.chunked = False    # only the end of the connection can end it
        head = request.method == b"HEAD"
        if reply.stream is None and reply.length() > _LONG_BYTES:
            # A client may read it page by page; but no client waits for the end of a connection that is about to close.
            reply.hold(None if stays else _PATIENCE_S)
        data = reply.render(self._app.date(), http10=request.http10, close=not stays and not request.http10,
                            keep=stays and request.http10, head=head)
        if reply.stream is not None and not head and not self.writer.transport.is_closing():
            request.keep_alive = stays
            self._feed(request, data, reply.stream)
            return
        self.writer.add(data, [] if head else reply.parts)
        if not stays:
            self.end()

    def _feed(self, request: Request, head: bytes, stream: Stream) -> None:
        """Begins to send a streamed answer; later answers wait."""
        self.blocked = True
        self._request = request
        self._feeder = Feeder(self._app.readers, self.writer.transport, self._state.tls, stream)
        self._feeder.paused = self._write_paused
        self._app.untaken.add(self)
        self.writer.add(head, [])
        self.writer.flush()
        self._state.loop.create_task(self._feeder.run()).add_done_callback(self._fed)
