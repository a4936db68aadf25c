"""Bytes to requests: finds where each begins and ends, and bounds sizes while bytes arrive."""

from __future__ import annotations

from typing import Final

from nsqc.httpd.caller import Caller
from nsqc.httpd.known import MOST_OWN, MOST_SHARED, Heads, learn
from nsqc.httpd.pipeline import Pipeline
from nsqc.httpd.reply import bad_request, tls_required
from nsqc.httpd.request import Request, fixed, is_foreign
from nsqc.httpd.site import ServerState, Site
from nsqc.wire.chunks import Chunks
from nsqc.wire.httphead import Head, HeadError, check_beginning, head_end, parse_head, skip_empty_lines

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
