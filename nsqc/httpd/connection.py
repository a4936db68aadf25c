"""One HTTP client: the loop's calls, time limits, and the fast path of publishing.

Consists of a reader (bytes to requests), a pipeline (requests to answers, in order) and a writer (answers to bytes).

Publishing is a hot path. After the head of a plain `POST /pub?topic=NAME` was parsed, its bytes are remembered; the
next request with the same head needs no parser and no Request, and gets a prepared answer. A new head of that kind is
recognised by its target. Therefore plain Python suffices: see perf/RESULTS.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from nsqc.httpd.caller import Caller
from nsqc.httpd.known import MOST_HEAD_BYTES
from nsqc.httpd.pipeline import Pipeline
from nsqc.httpd.reader import RequestReader
from nsqc.httpd.writer import Writer
from nsqc.loop.watch import span_began, span_ended
from nsqc.net.address import peer_text
from nsqc.net.limits import host_of
from nsqc.net.peercert import common_name

if TYPE_CHECKING:
    from nsqc.httpd.server import Server

# When the server closes, a new client has this long to begin its first request.
ARRIVING_S = 0.5
# A body has its deadline, plus a second for each block of this size: the slowest mobile networks manage that.
_BODY_BYTES_A_SECOND = 4096
# Bytes of a long read to publish between two looks at the clock: less than a millisecond of work.
_PUBLISHED_BYTES = 16 * 1024
# Reads up to this size are short: a client with one request.
_SHORT_BYTES = 4096
# Approximate time of a short read: a look at the clock would cost more than it is worth.
_SHORT_NS = 20_000
_LONG_NS = 1_000_000


class Connection(asyncio.Protocol):
    """The loop's protocol for one client."""

    __slots__ = ("_app", "_fd", "_fresh", "_heads", "_held", "_pipeline", "_reader", "_since", "_state",
                 "_timing_body", "_unread", "_writer", "caller", "due", "host", "server", "transport")

    caller: Caller
    _pipeline: Pipeline
    _reader: RequestReader
    _writer: Writer

    def __init__(self, server: Server) -> None:
        self.server = server
        self.host = ""                          # key for the connection limits
        self.due = 0.0                          # loop time by which more must arrive; 0: nothing is incomplete
        self._app = server.app
        self._state = server.state
        self._unread = server.app.unread
        self._fd = -1
        # A server that refuses every request knows none.
        self._heads = ({} if self._state.tls_required or self._app.gate.permits is not None
                       else server.app.publishes.heads)
        self._since = 0.0                       # loop time at which the head or the body started
        self._timing_body = False               # _since is the body's
        self._fresh = True                      # nothing has arrived yet
        self._held = b""                        # input received while blocked; reading stops until it is taken

    def __str__(self) -> str:
        return f"client({self._reader.remote})"

    # ------------------------------------------------------------------ the loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host = host_of(peer)
        remote = peer_text(peer)
        self.caller = Caller(self.host, remote, self._state.tls, self._common_name())
        self._writer = Writer(self._state.loop, self.transport, self._state.tls)
        self._pipeline = self._app.pipeline(self._app, self._state, self._writer, self)
        self._reader = RequestReader(self._app, self._state, self._pipeline, remote, self.caller,
                                     self._heads)
        if not self.server.admit(self, self.host):
            self._pipeline.closing = True
            self.transport.abort()
            return
        if self._unread is not None:
            self._fd = transport.get_extra_info("socket").fileno()
            self._unread.add(self._fd)
        self._since = self.server.now()
        self.due = self._since + self.server.header_timeout
        self.server.watch(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The client has left, or the connection has been closed."""
        if self._fresh:
            self._app.log.debug("HTTP: client(%s) disconnected without sending anything", self._reader.remote)
        self._pipeline.abandon()
        self._writer.closed()
        self.caller.leave()
        self.server.forget(self)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        pipeline, reader = self._pipeline, self._reader
        if self._unread is not None:
            self._unread.note(self._fd, _SHORT_NS if len(data) <= _SHORT_BYTES else _LONG_NS)
        if pipeline.closing:
            return
        if self._fresh:
            self._fresh = False
            self._is_complete()
        if pipeline.blocked:
            self._hold(data)
            return
        at = 0 if reader.incomplete else self._known_publishes(data, 0)
        if at < len(data) and not pipeline.blocked:
            began = span_began()
            at = self._take(data, at)
            span_ended(began, "HTTP requests of", self)
        if self._writer.out:
            self._writer.flush()
        if reader.incomplete:
            self._await_rest()
        elif self.due:
            self._is_complete()
        if at < len(data) and not pipeline.closing:
            self._hold(data[at:])
        elif self._state.closing and not (reader.incomplete or pipeline.blocked or pipeline.ended):
            pipeline.end()

    def _take(self, data: bytes, at: int) -> int:
        """Takes the requests in data[at:] for which this iteration has time; returns the index after them.

        A read can hold thousands of requests: blocks the connection if some remain.
        """
        pipeline, reader = self._pipeline, self._reader
        while True:
            at = reader.take(data, at)
            if at == len(data) or pipeline.blocked or pipeline.closing:
                return at
            if self._app.share.over():
                pipeline.rest()
                return at
            if not reader.incomplete:
                at = self._known_publishes(data, at)
                if at == len(data) or pipeline.blocked:
                    return at

    def eof_received(self) -> bool:
        """The client sends no more; its requests are still answered."""
        self._writer.eof = True
        if self._pipeline.blocked:
            self._pipeline.drop()
            return True
        self._input_ended()
        return False

    def pause_writing(self) -> None:
        """The client does not read its answers: stops reading its input."""
        self._pipeline.pause()
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._pipeline.resume()

    # ------------------------------------------------------------------ publishing

    def _known_publishes(self, data: bytes, start: int) -> int:
        """Answers the complete publishes with known heads at data[start:]; returns the index after them, or of the
        first one that the fast path declines."""
        if self._state.closing:
            return start
        known = self._heads.get
        pipeline = self._pipeline
        look = start + _PUBLISHED_BYTES
        while True:
            body = data.find(b"\r\n\r\n", start, start + MOST_HEAD_BYTES) + 4
            publish = known(data[start:body])
            if publish is None:
                return start
            end = body + publish[1]
            if end > len(data):
                return start
            if not pipeline.publish(publish[0], data[body:end]):
                return start
            start = end
            if end == len(data):
                return end
            if end > look:
                look = end + _PUBLISHED_BYTES
                if not pipeline.blocked and self._app.share.over():
                    pipeline.rest()
            if pipeline.blocked:
                return end

    # ------------------------------------------------------------------ access rules

    def _common_name(self) -> str:
        """Common name of the client's certificate; empty without one, or if no rules use it."""
        if self._app.gate.permits is None or not self._state.tls:
            return ""
        return common_name(self.transport.get_extra_info("peercert") or {})

    def rules_changed(self) -> None:
        """Access rules or options have changed: ends the connection if its last call is not permitted now."""
        self.forget_heads()
        permits = self._app.gate.permits
        if permits is not None and permits.has_lost(self.caller):
            self._app.log.info("HTTP: %s has lost its permissions: closing", self)
            self._pipeline.closing = True
            self.transport.abort()

    def forget_heads(self) -> None:
        """Forgets known heads: publishes need new checks."""
        self._heads.clear()

    # ------------------------------------------------------------------ flow

    def _hold(self, data: bytes) -> None:
        """Keeps input while the connection is blocked."""
        self._held += data
        self.transport.pause_reading()

    def unblocked(self) -> None:
        """The pipeline has answered everything: takes the held input, then continues to read or ends."""
        pipeline = self._pipeline
        if self._held and not pipeline.blocked:
            held, self._held = self._held, b""
            self.data_received(held)
        if pipeline.blocked or pipeline.ended or self.transport.is_closing():
            return
        if pipeline.closing or (self._state.closing and not self._receives()):
            pipeline.end()
        elif self._writer.eof:
            self._input_ended()
        else:
            self.transport.resume_reading()

    def _input_ended(self) -> None:
        """Answers an incomplete request, then ends."""
        self._reader.end()
        if not self._pipeline.ended:
            self._pipeline.end()

    # ------------------------------------------------------------------ for the server's close

    def end_soon(self) -> None:
        """Ends an idle connection at once, a busy one after its current answer."""
        self._pipeline.drop()
        if not self._pipeline.is_busy() and not self._held and not self._receives():
            self._pipeline.closing = True
            self._writer.flush()
            self._writer.close()

    def has_work(self) -> bool:
        """Whether an answer is due, or not completely sent."""
        return self._pipeline.is_busy() or bool(self._held) or self._receives() or self._writer.unsent() > 0

    def _receives(self) -> bool:
        """Whether part of a request has arrived, or the client is so new that its first is on its way."""
        if self._pipeline.closing or self._writer.eof:
            return False
        return self._reader.receives() or (self._fresh and self.server.now() - self._since < ARRIVING_S)

    # ------------------------------------------------------------------ time limits

    def _await_rest(self) -> None:
        """A request is incomplete: sets its deadline."""
        reader = self._reader
        if self._pipeline.closing:
            return
        if not self.due:
            self.server.watch(self)
            self._since = self.server.now()
        elif reader.in_body and not self._timing_body:
            self._since = self.server.now()
        self._timing_body = reader.in_body
        self.due = self._since + self._allowed()

    def _allowed(self) -> float:
        """Seconds for the head, or for the arrived part of the body plus the next part."""
        return self.server.header_timeout + self._reader.body_bytes / _BODY_BYTES_A_SECOND

    def _is_complete(self) -> None:
        self.due = 0.0
        self._timing_body = False
        self.server.unfinished.discard(self)

    def check_deadline(self, now: float) -> bool:
        """Closes the connection if a request, or its rest, is overdue; returns whether it did."""
        if self._pipeline.blocked:
            # Time without reading does not count.
            self.due = now + self.server.header_timeout
            self._since = self.due - self._allowed()
            return False
        if self.due >= now:
            return False
        self._pipeline.closing = True
        self._writer.close()
        return True
