"""One HTTP client: the loop's calls, time limits, and the fast path of publishing.

Consists of a reader (bytes to requests), a pipeline (requests to answers, in order) and a writer (answers to bytes).

Publishing is a hot path. After the head of a plain `POST /pub?topic=NAME` was parsed, its bytes are remembered; the
next request with the same head needs no parser and no Request, and gets a prepared answer. A new head of that kind is
recognised by its target. Therefore plain Python suffices: see perf/RESULTS.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from nsqc.httpd.gate import Caller
from nsqc.httpd.pipeline import Pipeline, Writer
from nsqc.httpd.reply import Request, bad_request, fixed, is_foreign, tls_required
from nsqc.httpd.site import MOST_HEAD_BYTES, MOST_OWN, MOST_SHARED, Heads, ServerState, Site, learn
from nsqc.loop.uv import span_began, span_ended
from nsqc.net.address import peer_text
from nsqc.net.listener import host_of
from nsqc.net.tls import common_name
from nsqc.wire.http import Chunks, Head, HeadError, check_beginning, head_end, parse_head, skip_empty_lines

if TYPE_CHECKING:
    from nsqc.httpd.server import Server


# ====================================================================== reader
# Bytes to requests: finds where each begins and ends, and bounds sizes while bytes arrive.

MAX_HEAD_BYTES: Final = 64 * 1024
# The rest of a refused body is read and dropped up to this size; beyond it the connection ends.
_MAX_DROPPED_BYTES = 256 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class RequestReader:
    """Takes bytes, request by request, and passes the requests to the pipeline.

    Of a plain publish, it first extracts only the topic and the body, for the pipeline's fast path.
    """

    __slots__ = ("_app", "_begun", "_body", "_caller", "_chunks", "_has_line", "_head", "_heads", "_missing",
                 "_permits", "_pipeline", "_publishes", "_request", "_skip", "_state", "_topic", "body_bytes",
                 "in_body", "incomplete", "remote")

    _head: Head     # of the request whose body is arriving

    def __init__(self, app: Site, state: ServerState, pipeline: Pipeline, remote: str, caller: Caller,
                 heads: Heads) -> None:
        """heads: of plain publishes permitted to this client."""
        self._app = app
        self._caller = caller
        self._heads = heads
        self._permits = app.gate.permits
        self._publishes = app.publishes
        self._state = state
        self._pipeline = pipeline
        self.remote = remote                    # HOST:PORT of the client
        # The arriving request.
        self.incomplete = False                 # only part of it has arrived
        self.in_body = False                    # its head is complete
        self.body_bytes = 0                     # received, kept or not, including framing
        self._begun = bytearray()               # an incomplete head
        self._has_line = False                  # it contains the request line, already checked
        self._missing = 0                       # bytes missing from a body of known length
        self._chunks: Chunks | None = None      # a chunked body
        self._body: bytes | bytearray = b""
        self._skip = False                      # already answered: drops the rest of it
        self._topic: bytes | None = None        # of a plain publish
        self._request: Request | None = None    # anything else

    def receives(self) -> bool:
        """Whether part of an unanswered request has arrived."""
        return self.incomplete and not self._skip

    def end(self) -> None:
        """The client sends no more, perhaps in the middle of a request."""
        if self.incomplete and not self._skip and not self._pipeline.closing:
            if self.in_body:
                self._fail_body()
            else:
                self._refuse(400)

    def take(self, data: bytes, at: int) -> int:
        """Takes data[at:], at most up to the end of a request; returns the index after the taken bytes.

        Only while the pipeline is neither blocked nor closing.
        """
        pipeline = self._pipeline
        if not self.in_body:
            try:
                at = self._take_head(data, at)
            except HeadError as error:
                self._refuse(error.status, error.reason)
            if not self.in_body or pipeline.blocked or pipeline.closing:
                return at
        return self._take_length(data, at) if self._chunks is None else self._take_chunks(data, at, self._chunks)

    # ------------------------------------------------------------------ heads

    def _take_head(self, data: bytes, at: int) -> int:
        """The same for a head. Raises HeadError."""
        begun = self._begun
        before = len(begun)
        if before:
            begun += data[at:at + MAX_HEAD_BYTES + 1 - before]
            end = head_end(begun, max(0, before - 2))   # the empty line may have begun earlier
            if end < 0:
                self._await_head()
                return len(data)
            raw = bytes(begun[:end])
            begun.clear()
            self._has_line = False
            at += end - before
        else:
            at = skip_empty_lines(data, at)
            end = head_end(data, at)
            if end < 0:
                begun += data[at:at + MAX_HEAD_BYTES + 1]
                self.incomplete = bool(begun)
                self._await_head()
                return len(data)
            raw = data[at:end]
            at = end
        if len(raw) > MAX_HEAD_BYTES:
            raise HeadError(431)
        self.incomplete = True
        self._begin(raw, parse_head(raw))
        return at

    def _await_head(self) -> None:
        """The head is still incomplete. Raises HeadError."""
        if len(self._begun) > MAX_HEAD_BYTES:
            raise HeadError(431)
        if not self._has_line:
            self._has_line = check_beginning(self._begun)

    def _begin(self, raw: bytes, head: Head) -> None:
        """The head is complete."""
        self.in_body = True
        self._head = head
        self._missing = head.length
        if (head.is_plain_post() and head.length <= self._app.max_msg_size
                and not self._state.tls_required and not self._state.closing):
            topic = self._publishes.targets.get(head.target) or self._publishes.find_topic(head.target)
            permits = self._permits
            if topic is not None and (permits is None
                                      or permits.may_publish(head.authorization, topic, self._caller)):
                self._topic = topic
                learn(self._heads, raw, topic, head.length, MOST_SHARED if permits is None else MOST_OWN)
                return
        if head.length < 0:
            self._chunks = Chunks()
        self._open_request(raw)

    # ------------------------------------------------------------------ bodies

    def _take_length(self, data: bytes, at: int) -> int:
        """Takes more of a body of known length."""
        part = data[at:at + self._missing]
        size = len(part)
        self._missing -= size
        self.body_bytes += size
        if self._is_wanted():
            if not self._body:
                self._body = part
            else:
                if type(self._body) is bytes:
                    self._body = bytearray(self._body)
                self._body += part
        if not self._missing:
            self._complete()
        return at + size

    def _take_chunks(self, data: bytes, at: int, chunks: Chunks) -> int:
        """The same for a chunked body."""
        body = None
        if self._is_wanted():
            body = self._body = self._body if isinstance(self._body, bytearray) else bytearray()
        try:
            after = chunks.feed(data, at, body)
        except ValueError:
            self._fail_body()
            return len(data)
        self.body_bytes += after - at
        if body is not None and self._request is not None:
            limit = self._app.body_limit(self._request.route) or 0
            if len(body) > limit:
                self._request.body = bytes(body[:limit + 1])
                self._answer_early(self._request, close=True)
                return len(data)
        if chunks.done:
            self._complete()
        return after

    def _is_wanted(self) -> bool:
        """Whether the route wants the body."""
        if self._topic is not None:
            return True
        return not self._skip and self._request is not None and self._request.route.body_limit is not None

    def _complete(self) -> None:
        """The request is complete."""
        body = self._body if type(self._body) is bytes else bytes(self._body)
        if self._topic is None or not self._pipeline.publish(self._topic, body):
            request = self._opened()
            if request is not None and not self._skip:
                request.body = body
                self._pipeline.handle(request)
        self._reset()

    def _fail_body(self) -> None:
        """The body cannot be read to its end."""
        request = self._opened()
        if request is None:
            return  # refused
        request.broken = True
        request.body = bytes(self._body)
        self._answer_early(request, close=True)

    def _reset(self) -> None:
        self.incomplete = self.in_body = self._skip = False
        self.body_bytes = 0
        self._body = b""
        self._topic = self._request = self._chunks = None

    # ------------------------------------------------------------------ requests

    def _opened(self) -> Request | None:
        """The arriving request, also that of a plain publish; None: refused."""
        if self._topic is not None:
            self._topic = None
            self._open_request(b"")
        return self._request

    def _open_request(self, raw: bytes) -> None:
        """Creates the Request, and answers it early if its body is irrelevant. raw: its head."""
        head = self._head
        connect = head.method == b"CONNECT"
        if connect and head.length:
            # This body, and all later bytes, may be meant for the host that it wants to be connected to.
            self._refuse(400, "CONNECT with a body")
            return
        try:
            request = Request(head.method, head.target, self.remote, head.length, head.minor == 0,
                              head.keep_alive and not connect)
        except ValueError:
            self._refuse(400)
            return
        request.head = raw
        request.caller = self._caller
        request.accept = head.accept
        request.authorization = head.authorization
        request.host = head.host
        request.publish_id = head.publish_id
        request.from_page = head.origin is not None
        request.foreign = is_foreign(head.host, head.origin, head.fetch_site)
        if self._state.tls_required:
            request.route = fixed(tls_required(self._app.https_port))
        else:
            request.route = self._app.gate.admit(self._app.resolve(request), request, self._caller)
        self._request = request
        if request.length:
            self._open_body(request)

    def _open_body(self, request: Request) -> None:
        route = request.route
        limit = self._app.body_limit(route)
        expects = self._head.expects
        if expects and not route.reads_body:
            # The body is not wanted, and the client waits before it sends any.
            self._answer_early(request, close=True)
        elif limit is not None and request.length > limit:
            self._answer_early(request, close=expects or request.length > _MAX_DROPPED_BYTES)
        elif expects and not request.http10:
            self._pipeline.interim(_CONTINUE)

    def _answer_early(self, request: Request, close: bool) -> None:
        """Answers before the body has arrived; drops the body."""
        self._skip = True
        self._body = b""
        if close:
            request.keep_alive = False
            self._pipeline.closing = self._pipeline.unread = True
        self._pipeline.handle(request)

    def _refuse(self, status: int, reason: str = "") -> None:
        """Answers before any routing, and ends the connection."""
        self._pipeline.closing = self._pipeline.unread = self._skip = True
        request = Request(b"GET", b"/", keep_alive=False)
        request.route = fixed(bad_request(status, reason))
        self._pipeline.handle(request)


# ====================================================================== connection

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
        """Whether part of a request has arrived, or the client is so new that its first may be in transit."""
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
