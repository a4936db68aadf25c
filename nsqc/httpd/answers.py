"""The answering half of a connection: answers leave in the order of their requests, in one write a turn.

An answer that has to wait (a pause that goes to disk first, a profile), or a client that does not read what it was
sent, blocks the connection: requests that have come already wait in a queue, and hardly more is read.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from nsqc.httpd.publish import refusal
from nsqc.httpd.reply import ApiError, Reply, v1_error
from nsqc.httpd.request import Request

# Answers collected in one turn are sent on when they exceed this.
_FLUSH_BYTES = 64 * 1024
# More than this is not copied to be sent in one piece.
_JOINED_BYTES = 1024 * 1024
# How long a connection that ends with unread input stays half open, so that its client can read the answer: seconds.
_LINGER_SECONDS = 0.5
# How long a client that is closed may take none of its answers: its network has sent lost packets again by then.
_GIVE_UP_SECONDS = 5.0


class _Write:
    """A plain publish that is being written, in place of a request with a handler that waits."""

    __slots__ = ()
    dropped = None


class Answers(asyncio.Protocol):
    """Base of Connection; knows requests and replies, but not how requests come in."""

    __slots__ = ("app", "blocked", "closing", "ended", "eof", "giving_up", "held", "out", "out_bytes", "pending",
                 "queue", "server", "transport", "unread", "write_paused")

    def __init__(self, server: Any) -> None:
        self.server = server
        self.app = server.app
        self.transport: Any = None
        self.out: list[bytes] = []              # this turn's answers
        self.out_bytes = 0                      # of them, but for those of plain publishes
        self.blocked = False                    # pending, or write_paused
        self.write_paused = False
        self.pending: Request | _Write | None = None    # its handler waits
        self.queue: deque[Request | bytes] = deque()
        self.held = b""                         # one read that came meanwhile; it is the last until it is taken
        self.eof = False                        # the client has sent all it will
        self.closing = False                    # takes no more input, ends behind the answers that are due
        self.ended = False                      # the last answer has gone out
        self.unread = False                     # ended before its client had sent all
        self.giving_up: asyncio.TimerHandle | None = None   # closed, but its client has not taken all

    def handle(self, request: Request) -> None:
        """Answers a request, or lets it wait for its turn."""
        if self.blocked:
            self.queue.append(request)
            return
        route = request.route
        try:
            data = route.handler(self.app, request)
            if hasattr(data, "__await__"):
                # One more read may come, or else nobody would notice that the client has gone.
                self.pending = request
                self.blocked = True
                self.server.loop.create_task(data).add_done_callback(self._handled)
                return
            reply = data if type(data) is Reply else route.reply(data)
        except Exception as error:
            reply = self.failed(route.error, error)
        self._finish(request, reply)

    def await_write(self, topic: Any) -> None:
        """A plain publish is answered when it is written; what comes behind it waits."""
        self.flush()
        waiting = self.pending = _Write()
        self.blocked = True
        topic.when_written(lambda error: self._written(waiting, error))

    def _written(self, waiting: "_Write", error: int) -> None:
        if self.pending is not waiting:
            return  # the client has gone
        self.pending = None
        self.answer_publish(error)
        if self.write_paused or self.ended:
            self.flush()
        else:
            self._unblock()

    def answer_publish(self, failure: int) -> None:
        """Answers a plain publish; the receiving half does."""
        raise NotImplementedError

    def interim(self, data: bytes) -> None:
        """Sends a line that is no answer yet, in its turn."""
        if self.blocked:
            self.queue.append(data)
        else:
            self.out.append(data)

    def send(self, reply: Reply, request: Request | None = None) -> None:
        """Puts an answer in line; request tells its form, None: HTTP/1.1 on a connection that stays."""
        parts = reply.parts
        stays = request is None or (request.keep_alive and not self.server.closing)
        if request is None:
            data = reply.render(self.app.date())
        else:
            data = reply.render(self.app.date(), http10=request.http10, close=not stays and not request.http10,
                                keep=stays and request.http10, head=request.method == b"HEAD")
        self.out.append(data)
        self.out_bytes += len(data)
        if parts and (request is None or request.method != b"HEAD"):
            self.out += parts
            self.out_bytes += sum(map(len, parts))
        if not stays:
            self.end()
        elif self.out_bytes > _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hands to the transport what has been collected."""
        out = self.out
        if out and not self.transport.is_closing():
            if self.out_bytes > _JOINED_BYTES:
                self.transport.writelines(out)
            else:
                self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()
        self.out_bytes = 0

    def end_soon(self) -> None:
        """The server closes: ends at once what is idle, else behind the answer to what is being made or received."""
        self.drop_pending()
        if self.pending is None and not self.queue and not self.receives():
            self.closing = True
            self.flush()
            self.close()

    def close(self) -> None:
        """Closes the transport once it is empty, or when its client takes nothing of it for too long."""
        transport = self.transport
        transport.close()
        left = transport.get_write_buffer_size()
        # Under TLS the client has to answer the end, too.
        if (left or self.server.certificates is not None) and self.giving_up is None:
            self.giving_up = self.server.loop.call_later(_GIVE_UP_SECONDS, self._give_up, left)

    def has_work(self) -> bool:
        """Whether an answer is due, or its client has not taken all of one."""
        return (self.pending is not None or bool(self.queue) or self.receives()
                or self.transport.get_write_buffer_size() > 0)

    def receives(self) -> bool:
        """Whether a request is on its way; the receiving half knows."""
        raise NotImplementedError

    def drop_pending(self) -> None:
        """Tells a handler that takes its time to come to an end."""
        if self.pending is not None and self.pending.dropped is not None:
            self.pending.dropped()

    # ------------------------------------------------------------------ the loop's calls

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone, or the connection has been closed."""
        self.closing = self.ended = True
        self.queue.clear()
        self.drop_pending()
        self.pending = None
        if self.giving_up is not None:
            self.giving_up.cancel()
            self.giving_up = None

    def pause_writing(self) -> None:
        """The client does not read its answers: read nothing more from it."""
        self.write_paused = self.blocked = True
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """It does again."""
        self.write_paused = False
        if self.pending is None:
            self._unblock()

    # ------------------------------------------------------------------ from and to the receiving half

    def hold(self, data: bytes) -> None:
        """Keeps input for when the connection is no longer blocked."""
        self.held += data
        self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Takes input; the receiving half does."""
        raise NotImplementedError

    def input_ended(self) -> None:
        """Sees to what is left of a request behind the last input, then ends; the receiving half does the first."""
        if not self.ended:
            self.end()

    # ------------------------------------------------------------------ within

    def _handled(self, task: asyncio.Task[Any]) -> None:
        """A handler that had to wait is done."""
        request = self.pending
        if request is None:
            # Its client has gone. What it was to do has been done; an error in that is still worth a line.
            if not task.cancelled() and task.exception() is not None:
                self.failed(v1_error, task.exception())
            return
        self.pending = None
        try:
            data = task.result()
            reply = data if type(data) is Reply else request.route.reply(data)
        except Exception as error:
            reply = self.failed(request.route.error, error)
        self._finish(request, reply)
        if not self.write_paused:
            self._unblock()

    def failed(self, form: Callable[[int, str], Reply], error: BaseException | None) -> Reply:
        """The answer for an exception. What the system refuses, such as a file for a new topic, is named."""
        if isinstance(error, ApiError):
            return form(error.status, error.text)
        self.app.log.error("panic in HTTP handler - %r", error)
        if isinstance(error, OSError) and error.errno:
            return form(503, refusal(error.errno))
        return v1_error(500, "INTERNAL_ERROR")

    def _finish(self, request: Request, reply: Reply) -> None:
        if request.route.logged:
            self.app.log_request(request, reply.status)
        self.send(reply, request)

    def end(self) -> None:
        """Closes the connection behind the last answer."""
        self.closing = self.ended = True
        self.queue.clear()
        self.flush()
        if self.transport.is_closing():
            return
        if self.unread and not self.eof and self.transport.can_write_eof():
            # Closing with unread input would reset the connection, and the client would lose the answer.
            self.transport.write_eof()
            self.server.loop.call_later(_LINGER_SECONDS, self.close)
            self.transport.resume_reading()
        else:
            self.close()

    def _give_up(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < before:
            self.giving_up = self.server.loop.call_later(_GIVE_UP_SECONDS, self._give_up, left)
        else:
            self.giving_up = None
            self.transport.abort()

    def _unblock(self) -> None:
        """Goes on with what waits; reads again when nothing does."""
        self.blocked = False
        while self.queue and not self.blocked:
            waiting = self.queue.popleft()
            if type(waiting) is bytes:
                self.out.append(waiting)
            else:
                self.handle(waiting)
        self.flush()
        if self.held and not self.blocked:
            held, self.held = self.held, b""
            self.data_received(held)
        if self.blocked or self.ended or self.transport.is_closing():
            return
        if self.closing or (self.server.closing and not self.receives()):
            self.end()
        elif self.eof:
            self.input_ended()
        else:
            self.transport.resume_reading()
