"""The receiving half of a connection: bytes to requests. Sizes are checked while bytes arrive, times by the server.

Publishing is a hot path. The head of a plain `POST /pub?topic=NAME` that the parser has taken once is remembered, byte
by byte; a client's next request with the same head needs no parser, makes no Request, and is answered with ready-made
bytes. A new head of that kind still goes a short way, by its target. So plain Python will do: see perf/RESULTS.md.
"""

from time import monotonic
from typing import Any

import httptools
from httptools.parser.errors import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserInvalidMethodError,
    HttpParserUpgrade,
)

from nsqc.httpd.answers import Answers
from nsqc.httpd.publish import refusal
from nsqc.httpd.reply import bad_request, tls_required, v1_error
from nsqc.httpd.request import Request, unknown_method
from nsqc.httpd.router import fixed, resolve
from nsqc.net.address import peer_text
from nsqc.net.limits import host_of

MAX_HEAD_BYTES = 64 * 1024
# How long a client that has just come may take, when the server closes, to begin with the request it has come for.
ARRIVING_S = 0.5
# What is left of a body that was refused is read and dropped up to here; above it the connection ends.
_MAX_DROPPED_BYTES = 256 * 1024
# A body has its deadline and, for each so many bytes that have come, a second more: the slowest mobile networks manage.
_BODY_BYTES_A_SECOND = 4096

_STOPS = (HttpParserError, HttpParserUpgrade)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_HOST, _LENGTH, _EXPECT, _CODING, _CONNECTION = range(1, 6)
_FIELDS = {
    name: number
    for number, lower in ((_HOST, b"host"), (_LENGTH, b"content-length"), (_EXPECT, b"expect"),
                          (_CODING, b"transfer-encoding"), (_CONNECTION, b"connection"))
    for name in (lower, lower.title())
}


class _HeadTooLarge(Exception):
    """Stops the parser."""


class Connection(Answers):
    """The loop's protocol for one client, and the parser's callbacks."""

    __slots__ = ("begun", "body", "body_bytes", "broker", "chunked", "dates", "due", "expect", "fresh", "head_bytes",
                 "heads", "host", "hosts", "in_body", "length", "method", "parser", "partial", "plain", "progress",
                 "remote", "request", "since", "skip", "special", "target", "targets", "timing_body", "url")

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.broker = server.app.broker
        self.targets = server.app.targets
        self.heads = server.app.heads
        self.dates = server.app.dates
        self.parser: Any = None
        self.remote = ""
        self.host = ""                          # what the connection limits count it under
        # The request that is coming in.
        self.begun = False                      # its first byte is here, its last not
        self.in_body = False                    # its head is whole
        self.skip = False                       # it has been answered, the rest of it is dropped
        self.due = 0.0                          # loop time by which more must have come; 0: it is whole
        self.since = 0.0                        # loop time at which the head, or the body, has begun
        self.timing_body = False                # it is the body's
        self.fresh = True                       # nothing has come yet
        self.url = b""
        self.method = b""                       # its own, where the parser knows no such method
        self.head_bytes = 0                     # of whole lines
        self.partial = 0                        # bytes since the parser last told of something
        self.progress = False                   # it has, in this read
        self.hosts = 0
        self.length = 0                         # of the body, as announced
        self.chunked = self.expect = False
        self.special = False                    # with headers that a plain publish does not have
        self.body: bytes | bytearray = b""
        self.body_bytes = 0                     # that have come, kept or not
        self.target: bytes | None = None        # the topic, for a plain publish
        self.plain: tuple[bytes, int] | None = None     # target and length of the last one in this read
        self.request: Request | None = None     # for anything else

    # ------------------------------------------------------------------ the loop's calls

    def connection_made(self, transport: Any) -> None:
        """A client is here."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.remote = peer_text(peer)
        self.host = host_of(peer)
        self.parser = httptools.HttpRequestParser(self)
        if not self.server.admit(self, self.host):
            self.closing = True
            transport.abort()
            return
        self.since = self.server.now()
        self.due = self.since + self.server.header_timeout
        self.server.watch(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone, or the connection has been closed."""
        super().connection_lost(error)
        self.parser = None      # parser and connection hold each other
        self.server.forget(self)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self.closing:
            return
        if self.fresh:
            self.fresh = False
            self._is_whole()
        if self.blocked:
            self.hold(data)
            return
        begins = not self.begun
        if begins and not self.server.tls_required and not self.server.closing:
            data = self._known_publishes(data)
            if not data:
                return
        try:
            self.parser.feed_data(data)
        except _STOPS as error:
            self._parse_rest(data, error)
        if self.plain is not None:
            if begins:
                self._learn(data, self.plain)
            self.plain = None
        if self.out:
            self.flush()
        if self.begun:
            self._await_rest(len(data))
        elif self.due:
            self._is_whole()
        if self.server.closing and not (self.begun or self.blocked or self.ended):
            self.end()

    def receives(self) -> bool:
        """Whether a part of a request is here, or the client has come so lately that its first is on its way."""
        if self.closing or self.eof:
            return False
        return (self.begun and not self.skip) or (self.fresh and self.server.now() - self.since < ARRIVING_S)

    def eof_received(self) -> bool:
        """The client sends no more; what it asked for is still answered."""
        self.eof = True
        if self.blocked:
            self.drop_pending()
            return True
        self.input_ended()
        return False

    def input_ended(self) -> None:
        """The client has sent all, perhaps in the middle of a request."""
        if self.begun and not self.skip and not self.closing:
            if self.in_body:
                self._fail_body()
            else:
                self._refuse(400)
        super().input_ended()

    # ------------------------------------------------------------------ the parser's calls

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self.begun = True

    def on_url(self, url: bytes) -> None:
        """The request target, or a part of it."""
        self.url += url
        self.progress = True
        self.head_bytes += len(url)
        if self.head_bytes > MAX_HEAD_BYTES:
            raise _HeadTooLarge

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer behind a chunked body."""
        self.progress = True
        self.head_bytes += len(name) + len(value)
        if self.head_bytes > MAX_HEAD_BYTES:
            raise _HeadTooLarge
        field = _FIELDS.get(name) or _FIELDS.get(name.lower())
        if field is None or self.in_body:
            return
        if field == _LENGTH:
            self.length = int(value)
        elif field == _HOST:
            self.hosts += 1
        else:
            self.special = True
            self._special_header(field, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self.in_body = True
        if (self.length and not self.special and self.hosts == 1 and self.length <= self.app.max_msg_size
                and self.parser.get_method() == b"POST" and self.parser.should_keep_alive() and not self.closing
                and not self.server.tls_required and not self.server.closing):
            self.target = self.targets.get(self.url) or self.app.find_target(self.url)
            if self.target is not None:
                return
        self._open_request()

    def on_body(self, chunk: bytes) -> None:
        """A part of the body."""
        self.progress = True
        self.body_bytes += len(chunk)
        if self.target is None and self._is_unwanted():
            return
        if not self.body:
            self.body = chunk
        else:
            if type(self.body) is bytes:
                self.body = bytearray(self.body)
            self.body += chunk
        if self.request is not None:
            self._check_limit(self.request)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self.target is None:
            if not self.skip and not self.closing and self.request is not None:
                self._complete(self.request)
        elif self.blocked:
            self._open_request()
            self._complete(self.request)
        else:
            self.plain = (self.target, self.length)
            self._publish(self.target, self.body if type(self.body) is bytes else bytes(self.body))
        self._reset()

    # ------------------------------------------------------------------ plain publishes

    def _known_publishes(self, data: bytes) -> bytes:
        """Takes the whole publishes with known heads that data begins with, and answers them; returns the rest."""
        known = self.heads.get
        start = 0
        while True:
            body = data.find(b"\r\n\r\n", start) + 4
            plain = known(data[start:body])
            if plain is None:
                break
            end = body + plain[1]
            if end > len(data):
                break
            self._publish(plain[0], data[body:end])
            start = end
            if end == len(data):
                break
            if self.blocked:
                self.flush()
                self.hold(data[start:])
                return b""
        if start:
            self.flush()
            return data[start:]
        return data

    def _publish(self, target: bytes, body: bytes) -> None:
        try:
            topic = self.broker.topic(target) or self.broker.get_topic(target)
            failure = topic.publish(body)
        except Exception as error:
            self.send(self.failed(v1_error, error))
            return
        if failure < 0:
            self.await_write(topic)
        else:
            self.answer_publish(failure)

    def answer_publish(self, failure: int) -> None:
        """Answers a plain publish: it was accepted, or refused for an errno."""
        if failure:
            self.send(v1_error(503, refusal(failure)))
            return
        dates = self.dates
        if monotonic() >= dates.until:
            dates.refresh()
        self.out.append(dates.published)

    def _learn(self, data: bytes, plain: tuple[bytes, int]) -> None:
        """Remembers the head of a plain publish, where data, which begins with a request, is that and nothing else."""
        size = len(data) - plain[1]
        # For any but the first in data, the end of the first head lies elsewhere.
        if size == data.find(b"\r\n\r\n") + 4 and data.startswith(b"POST "):
            self.app.remember(data[:size], plain)

    # ------------------------------------------------------------------ requests

    def _reset(self) -> None:
        self.begun = self.in_body = False
        self.url = self.body = b""
        self.head_bytes = self.length = self.hosts = self.body_bytes = 0
        if self.target is not None:
            # Nothing else was touched.
            self.target = None
            return
        self.request = None
        self.method = b""
        self.skip = self.special = self.chunked = self.expect = False

    def _special_header(self, field: int, value: bytes) -> None:
        if field == _CODING:
            self.chunked = True
            if value.lower() != b"chunked":
                self._refuse(501, "Unsupported transfer encoding")
        elif field == _CONNECTION:
            # The parser minds it.
            return
        elif value.lower() == b"100-continue":
            self.expect = True
        else:
            self._refuse(417)

    def _open_request(self) -> None:
        """Makes the Request, and sees whether it can be answered already."""
        if self.closing:
            return
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            if version == "0.9":
                self._refuse(400)
            else:
                self._refuse(505, "unsupported protocol version")
            return
        if self.hosts != 1 and (self.hosts or version == "1.1"):
            self._refuse(400, "too many Host headers" if self.hosts else "missing required Host header")
            return
        try:
            request = Request(self.method or self.parser.get_method(), self.url, self.remote,
                              -1 if self.chunked else self.length, version == "1.0", self.parser.should_keep_alive())
        except ValueError:
            self._refuse(400)
            return
        if self.server.tls_required:
            request.route = fixed(tls_required(self.app.info["https_port"]))
        else:
            request.route = resolve(request)
        self.request = request
        if request.length:
            self._open_body(request)

    def _open_body(self, request: Request) -> None:
        route = request.route
        limit = None if route.body_limit is None else route.body_limit(self.app.settings.now)
        if self.expect and not route.reads_body:
            # Nobody wants this body, and its client waits with it.
            self._answer_early(request, close=True)
        elif limit is not None and request.length > limit:
            self._answer_early(request, close=self.expect or request.length > _MAX_DROPPED_BYTES)
        elif self.expect and not request.http10:
            self.interim(_CONTINUE)

    def _is_unwanted(self) -> bool:
        """Whether nobody wants this part of a body."""
        return self.skip or self.closing or self.request is None or self.request.route.body_limit is None

    def _check_limit(self, request: Request) -> None:
        limit = request.route.body_limit(self.app.settings.now)
        if len(self.body) > limit:
            request.body = bytes(self.body[:limit + 1])
            self._answer_early(request, close=True)

    def _complete(self, request: Request) -> None:
        request.body = self.body if type(self.body) is bytes else bytes(self.body)
        self.handle(request)

    def _answer_early(self, request: Request, close: bool) -> None:
        """Answers before the body has come; what comes of it is dropped."""
        self.skip = True
        self.body = b""
        if close:
            request.keep_alive = False
            self.closing = self.unread = True
        self.handle(request)

    def _fail_body(self) -> None:
        """The body cannot be read to its end."""
        request = self.request
        if request is None:
            # A plain publish, so far.
            self.target = None
            self._open_request()
            request = self.request
        request.broken = True
        request.body = bytes(self.body)
        self._answer_early(request, close=True)

    # ------------------------------------------------------------------ input that is no plain request

    def _parse_rest(self, data: bytes, error: Exception | None) -> None:
        """Goes on behind what the parser stops at, though Go's server does not."""
        rest = memoryview(data)
        while error is not None and not self.closing:
            if isinstance(error, HttpParserUpgrade):
                # No upgrade is offered: what follows is the next request, as ever.
                rest = rest[error.args[0]:]
            elif isinstance(error, HttpParserInvalidMethodError) and not self.due:
                # The parser has a list of methods. Any other is parsed under the name of GET.
                self.method = unknown_method(rest)
                if not self.method:
                    self._refuse(400)
                    return
                rest = memoryview(b"GET" + rest[len(self.method):])
            else:
                self._malformed(error)
                return
            self.parser = httptools.HttpRequestParser(self)
            error = self._feed(rest)

    def _feed(self, data: memoryview) -> Exception | None:
        try:
            self.parser.feed_data(data)
        except _STOPS as error:
            return error
        return None

    def _malformed(self, error: Exception) -> None:
        cause = error.__context__ if isinstance(error, HttpParserCallbackError) else None
        if isinstance(cause, _HeadTooLarge):
            self._refuse(431)
        elif cause is not None:
            self.app.log.error("panic in HTTP handler - %r", cause)
            self._refuse(500)
        elif self.in_body and not self.skip:
            self._fail_body()
        else:
            self._refuse(400)

    def _refuse(self, status: int, reason: str = "") -> None:
        """Answers below all routes, and ends the connection."""
        if self.closing:
            return
        self.closing = self.unread = self.skip = True
        request = Request(b"GET", b"/", keep_alive=False)
        request.route = fixed(bad_request(status, reason))
        self.handle(request)

    def _await_rest(self, size: int) -> None:
        """A request is not whole yet: bounds what the parser holds of it, and sets its deadline."""
        if self.closing:
            return
        self.partial = 0 if self.progress else self.partial + size
        self.progress = False
        if self.head_bytes + self.partial > MAX_HEAD_BYTES:
            self._refuse(431)
            return
        if not self.due:
            self.server.watch(self)
            self.since = self.server.now()
        elif self.in_body and not self.timing_body:
            self.since = self.server.now()
        self.timing_body = self.in_body
        self.due = self.since + self._allowed()

    def _allowed(self) -> float:
        """Seconds for the head, or for as much of the body as has come, and the next part of it."""
        return self.server.header_timeout + self.body_bytes / _BODY_BYTES_A_SECOND

    def _is_whole(self) -> None:
        """Nothing is waited for."""
        self.due = 0.0
        self.timing_body = False
        self.server.unfinished.discard(self)

    def excuse(self, now: float) -> None:
        """Time that passes while nothing is read does not count."""
        self.due = now + self.server.header_timeout
        self.since = self.due - self._allowed()

    def expired(self) -> None:
        """A request, or the rest of one, has not come in time."""
        self.closing = True
        self.close()
