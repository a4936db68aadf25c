"""Bytes to requests: the parser, its callbacks, and bounds on sizes while bytes arrive."""

from __future__ import annotations

from typing import Final

import httptools
from httptools.parser.errors import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserInvalidMethodError,
    HttpParserUpgrade,
)

from nsqc.httpd.pipeline import Pipeline
from nsqc.httpd.reply import bad_request, tls_required
from nsqc.httpd.request import Request, fixed, unknown_method
from nsqc.httpd.site import ServerState, Site

MAX_HEAD_BYTES: Final = 64 * 1024
# The rest of a body that was refused is read and dropped up to here; beyond it the connection ends.
_MAX_DROPPED_BYTES = 256 * 1024

STOPS = (HttpParserError, HttpParserUpgrade)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_HOST, _LENGTH, _EXPECT, _CODING, _CONNECTION, _ACCEPT = range(1, 7)
_FIELDS = {
    name: number
    for number, lower in ((_HOST, b"host"), (_LENGTH, b"content-length"), (_EXPECT, b"expect"),
                          (_CODING, b"transfer-encoding"), (_CONNECTION, b"connection"), (_ACCEPT, b"accept"))
    for name in (lower, lower.title())
}


class _HeadTooLarge(Exception):
    """Stops the parser."""


class RequestReader:
    """Feeds the parser, and the pipeline with what the parser finds.

    A plain publish goes a short way: nothing is made of it but its topic and its body.
    """

    __slots__ = ("_accept", "_app", "_body", "_chunked", "_expect", "_hosts", "_length", "_method", "_partial",
                 "_pipeline", "_progress", "_publishes", "_request", "_skip", "_special", "_state",
                 "_targets", "_topic", "_url", "body_bytes", "head_bytes", "in_body", "incomplete", "parser", "publish",
                 "remote")

    def __init__(self, app: Site, state: ServerState, pipeline: Pipeline, remote: str) -> None:
        self._app = app
        self._publishes = app.publishes
        self._targets = app.publishes.targets
        self._state = state
        self._pipeline = pipeline
        self.remote = remote                    # HOST:PORT of the client
        self.parser = httptools.HttpRequestParser(self)
        # The request that is coming in.
        self.incomplete = False                      # its first byte has arrived, its last has not
        self.in_body = False                    # its head is complete
        self.head_bytes = 0                     # of complete lines
        self.body_bytes = 0                     # received, kept or not
        self._skip = False                      # it has been answered, the rest of it is dropped
        self._url = b""
        self._accept = b""
        self._method = b""                      # its own, if the parser does not know it
        self._partial = 0                       # bytes since the parser last called back
        self._progress = False                  # it has, in this read
        self._hosts = 0
        self._length = 0                        # of the body, as announced
        self._chunked = self._expect = False
        self._special = False                   # it has headers that a plain publish has not
        self._body: bytes | bytearray = b""
        self._topic: bytes | None = None        # of a plain publish
        self._request: Request | None = None    # anything else
        # Topic and length of the last plain publish in this read.
        self.publish: tuple[bytes, int] | None = None

    def close(self) -> None:
        """Parser and reader refer to each other."""
        del self.parser

    def receives(self) -> bool:
        """Whether a part of a request has arrived whose answer is still to come."""
        return self.incomplete and not self._skip

    def missing(self) -> int:
        """Bytes of a body of known length that are still to come."""
        return self._length - self.body_bytes if self.in_body else 0

    def end(self) -> None:
        """The client sends no more, perhaps in the middle of a request."""
        if self.incomplete and not self._skip and not self._pipeline.closing:
            if self.in_body:
                self._fail_body()
            else:
                self._refuse(400)

    def check_head(self, size: int) -> bool:
        """Bounds what the parser holds of a request that a read of this size has left incomplete; False: refused."""
        self._partial = 0 if self._progress else self._partial + size
        self._progress = False
        if self.head_bytes + self._partial > MAX_HEAD_BYTES:
            self._refuse(431)
            return False
        return True

    # ------------------------------------------------------------------ the parser's calls

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self.incomplete = True

    def on_url(self, url: bytes) -> None:
        """The request target, or a part of it."""
        self._url += url
        self._progress = True
        self.head_bytes += len(url)
        if self.head_bytes > MAX_HEAD_BYTES:
            raise _HeadTooLarge

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer behind a chunked body."""
        self._progress = True
        self.head_bytes += len(name) + len(value)
        if self.head_bytes > MAX_HEAD_BYTES:
            raise _HeadTooLarge
        field = _FIELDS.get(name) or _FIELDS.get(name.lower())
        if field is None or self.in_body:
            return
        if field == _LENGTH:
            self._length = int(value)
        elif field == _HOST:
            self._hosts += 1
        elif field == _ACCEPT:
            # Several count as one list.
            self._accept = self._accept + b"," + value if self._accept else value
        else:
            self._special = True
            self._special_header(field, value)

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self.in_body = True
        if (self._length and not self._special and self._hosts == 1 and self._length <= self._app.max_msg_size
                and self.parser.get_method() == b"POST" and self.parser.should_keep_alive()
                and not self._pipeline.closing and not self._state.tls_required and not self._state.closing):
            self._topic = self._targets.get(self._url) or self._publishes.find_topic(self._url)
            if self._topic is not None:
                return
        self._open_request()

    def on_body(self, chunk: bytes) -> None:
        """A part of the body."""
        self._progress = True
        self.body_bytes += len(chunk)
        if self._topic is None and self._is_unwanted():
            return
        if not self._body:
            self._body = chunk
        else:
            if type(self._body) is bytes:
                self._body = bytearray(self._body)
            self._body += chunk
        if self._request is not None:
            self._check_limit(self._request)

    def on_message_complete(self) -> None:
        """The request is complete."""
        pipeline = self._pipeline
        if self._topic is None:
            if not self._skip and not pipeline.closing and self._request is not None:
                self._complete(self._request)
        elif pipeline.blocked:
            self._open_request()
            if self._request is not None:
                self._complete(self._request)
        else:
            self.publish = (self._topic, self._length)
            pipeline.publish(self._topic, self._body if type(self._body) is bytes else bytes(self._body))
        self._reset()

    # ------------------------------------------------------------------ requests

    def _reset(self) -> None:
        self.incomplete = self.in_body = False
        self._url = self._body = self._accept = b""
        self.head_bytes = self._length = self._hosts = self.body_bytes = 0
        if self._topic is not None:
            # Nothing else was touched.
            self._topic = None
            return
        self._request = None
        self._method = b""
        self._skip = self._special = self._chunked = self._expect = False

    def _special_header(self, field: int, value: bytes) -> None:
        if field == _CODING:
            self._chunked = True
            if value.lower() != b"chunked":
                self._refuse(501, "Unsupported transfer encoding")
        elif field == _CONNECTION:
            # The parser obeys it.
            return
        elif value.lower() == b"100-continue":
            self._expect = True
        else:
            self._refuse(417)

    def _open_request(self) -> None:
        """Makes the Request, and answers it early if its body does not matter."""
        if self._pipeline.closing:
            return
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            if version == "0.9":
                self._refuse(400)
            else:
                self._refuse(505, "unsupported protocol version")
            return
        if self._hosts != 1 and (self._hosts or version == "1.1"):
            self._refuse(400, "too many Host headers" if self._hosts else "missing required Host header")
            return
        try:
            request = Request(self._method or self.parser.get_method(), self._url, self.remote,
                              -1 if self._chunked else self._length, version == "1.0",
                              self.parser.should_keep_alive())
        except ValueError:
            self._refuse(400)
            return
        request.accept = self._accept
        if self._state.tls_required:
            request.route = fixed(tls_required(self._app.https_port))
        else:
            request.route = self._app.resolve(request)
        self._request = request
        if request.length:
            self._open_body(request)

    def _open_body(self, request: Request) -> None:
        route = request.route
        limit = self._app.body_limit(route)
        if self._expect and not route.reads_body:
            # Nobody wants this body, and its client waits before it sends any.
            self._answer_early(request, close=True)
        elif limit is not None and request.length > limit:
            self._answer_early(request, close=self._expect or request.length > _MAX_DROPPED_BYTES)
        elif self._expect and not request.http10:
            self._pipeline.interim(_CONTINUE)

    def _is_unwanted(self) -> bool:
        """Whether nobody wants this part of a body."""
        return (self._skip or self._pipeline.closing or self._request is None
                or self._request.route.body_limit is None)

    def _check_limit(self, request: Request) -> None:
        limit = self._app.body_limit(request.route) or 0
        if len(self._body) > limit:
            request.body = bytes(self._body[:limit + 1])
            self._answer_early(request, close=True)

    def _complete(self, request: Request) -> None:
        request.body = self._body if type(self._body) is bytes else bytes(self._body)
        self._pipeline.handle(request)

    def _answer_early(self, request: Request, close: bool) -> None:
        """Answers before the body has arrived; what arrives of it is dropped."""
        self._skip = True
        self._body = b""
        if close:
            request.keep_alive = False
            self._pipeline.closing = self._pipeline.unread = True
        self._pipeline.handle(request)

    def _fail_body(self) -> None:
        """The body cannot be read to its end."""
        if self._request is None:
            # A plain publish, so far.
            self._topic = None
            self._open_request()
        request = self._request
        if request is None:
            return  # refused
        request.broken = True
        request.body = bytes(self._body)
        self._answer_early(request, close=True)

    # ------------------------------------------------------------------ where the parser stops

    def parse_rest(self, data: bytes, stop: Exception | None, begins: bool) -> None:
        """Continues where something stops the parser that does not stop Go's server.

        begins: no request was incomplete before this read.
        """
        rest = memoryview(data)
        while stop is not None and not self._pipeline.closing:
            if isinstance(stop, HttpParserUpgrade):
                # No upgrade is offered: the next request follows, as usual.
                rest = rest[stop.args[0]:]
            elif isinstance(stop, HttpParserInvalidMethodError) and begins:
                # The parser has a list of methods. Others are parsed under the name of GET.
                self._method = unknown_method(rest)
                if not self._method:
                    self._refuse(400)
                    return
                rest = memoryview(b"GET" + rest[len(self._method):])
            else:
                self._malformed(stop)
                return
            self.parser = httptools.HttpRequestParser(self)
            stop = self._stop_of(rest)

    def _stop_of(self, data: memoryview) -> Exception | None:
        try:
            self.parser.feed_data(data)
        except STOPS as error:
            return error
        return None

    def _malformed(self, error: Exception) -> None:
        cause = error.__context__ if isinstance(error, HttpParserCallbackError) else None
        if isinstance(cause, _HeadTooLarge):
            self._refuse(431)
        elif cause is not None:
            self._app.log.error("panic in HTTP handler - %r", cause)
            self._refuse(500)
        elif self.in_body and not self._skip:
            self._fail_body()
        else:
            self._refuse(400)

    def _refuse(self, status: int, reason: str = "") -> None:
        """Answers before any routing, and ends the connection."""
        if self._pipeline.closing:
            return
        self._pipeline.closing = self._pipeline.unread = self._skip = True
        request = Request(b"GET", b"/", keep_alive=False)
        request.route = fixed(bad_request(status, reason))
        self._pipeline.handle(request)
