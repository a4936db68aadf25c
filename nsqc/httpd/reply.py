"""Answers of handlers, and their bytes on the wire, with nsqd's headers."""

import errno
import os
import time
from http import HTTPStatus

import msgspec

from nsqc.httpd.streaming import Held, Stream

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"

_NOSNIFF = "X-Content-Type-Options: nosniff\r\n"     # browsers must not interpret an answer as a script or a page
_NSQ_HEADER = "X-Nsq-Content-Type: nsq; version=1.0\r\n"
encoded = msgspec.json.Encoder().encode
# html.escape, without its module's tables.
_ENTITIES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;"))
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class ApiError(Exception):
    """A handler's refusal: an HTTP status and NSQ's word for the reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def refusal(failure: int) -> str:
    """The text of a 503 for an errno: nsqd's word while the daemon stops, else the cause."""
    return "EXITING" if failure == errno.ESHUTDOWN else f"FAILED - {os.strerror(failure)}"


class Reply:
    """A status, a body, and the headers that go with it."""

    __slots__ = ("body", "content_type", "extra", "nsq", "parts", "status", "stream")

    def __init__(self, status: int, body: bytes = b"", content_type: str = "", nsq: bool = False,
                 extra: str = "", parts: list[bytes] | None = None, stream: Stream | None = None) -> None:
        self.status = status
        self.body = body
        self.parts = parts or []            # more of the body: a large one is never joined
        self.stream = stream                # the body, instead of the others
        self.content_type = content_type    # empty: no header
        self.nsq = nsq                      # with X-NSQ-Content-Type
        self.extra = extra                  # further header lines, each with its line end

    def length(self) -> int:
        """Bytes of a body that is not a stream."""
        return len(self.body) + sum(map(len, self.parts)) if self.parts else len(self.body)

    def hold(self, patience_s: float | None) -> None:
        """Has worker threads send the body. patience_s: see Stream."""
        self.stream = Held([self.body, *self.parts], patience_s)
        self.body = b""
        self.parts = []

    def render(self, date: str, *, http10: bool = False, close: bool = False, keep: bool = False,
               head: bool = False) -> bytes:
        """The bytes to send, without parts. close, keep: add the Connection header; head: omit the body."""
        length = self.length() if self.stream is None else self.stream.length
        if length is not None:
            size = f"Content-Length: {length}\r\n"
        else:
            size = "" if http10 else "Transfer-Encoding: chunked\r\n"
        lines = (
            f"HTTP/1.{0 if http10 else 1} {self.status} {HTTPStatus(self.status).phrase}\r\n{self.extra}"
            f"{f'Content-Type: {self.content_type}' + chr(13) + chr(10) if self.content_type else ''}"
            f"{_NSQ_HEADER if self.nsq else ''}{_NOSNIFF}{date}{size}"
        )
        if close:
            lines += "Connection: close\r\n"
        elif keep:
            lines += "Connection: keep-alive\r\n"
        return (lines + "\r\n").encode("latin-1") + (b"" if head else self.body)


def v1(data: object) -> Reply:
    """The reply of a V1 call: text and bytes unchanged, None as an empty body, anything else as JSON."""
    if data is None:
        return Reply(200, nsq=True)
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, bytes):
        return Reply(200, data, TEXT if data else "", nsq=True)
    return Reply(200, encoded(data), JSON, nsq=True)


def v1_error(status: int, text: str, extra: str = "") -> Reply:
    """The reply of a failed V1 call."""
    return Reply(status, encoded({"message": text}), JSON, nsq=True, extra=extra)


def unauthorized(text: str, https_port: int, extra: str) -> Reply:
    """The reply to a client without a token. https_port: where to show it; 0: there is no HTTPS."""
    return Reply(401, encoded({"message": text} | ({"https_port": https_port} if https_port else {})), JSON, nsq=True,
                 extra=extra)


def tls_required(https_port: int) -> Reply:
    """The reply to requests that should have used TLS."""
    return Reply(403, encoded({"message": "TLS_REQUIRED", "https_port": https_port}), JSON, nsq=True)


def plain(text: str, status: int = 200) -> Reply:
    """Plain text, without the NSQ header."""
    return Reply(status, text.encode(), TEXT)


def redirect(status: int, location: str, with_body: bool) -> Reply:
    """A redirection; Go adds a line of HTML for GET and HEAD."""
    extra = f"Location: {location}\r\n"
    if not with_body:
        return Reply(status, extra=extra)
    for character, entity in _ENTITIES:
        location = location.replace(character, entity)
    body = f'<a href="{location}">{HTTPStatus(status).phrase}</a>.\n\n'
    return Reply(status, body.encode(), HTML, extra=extra)


def bad_request(status: int = 400, reason: str = "") -> Reply:
    """The answer of Go's server itself, before any handler."""
    text = f"{status} {HTTPStatus(status).phrase}" + (f": {reason}" if reason else "")
    return Reply(status, text.encode(), TEXT)


def http_date(unix: float) -> str:
    """Unix seconds as an HTTP date. strftime depends on the locale, and the email package is a third of the imports."""
    t = time.gmtime(unix)
    return (f"{_DAYS[t.tm_wday]}, {t.tm_mday:02d} {_MONTHS[t.tm_mon - 1]} {t.tm_year:04d} "
            f"{t.tm_hour:02d}:{t.tm_min:02d}:{t.tm_sec:02d} GMT")


class Dates:
    """Texts that change once a second: the Date header, and the reply to a publish, the most frequent one."""

    __slots__ = ("line", "published", "until")

    def __init__(self) -> None:
        self.until = 0.0        # monotonic seconds at which both expire
        self.line = ""
        self.published = b""    # OK, for HTTP/1.1 on a connection that stays open

    def refresh(self) -> None:
        """Renders both for the current second."""
        unix = time.time()
        self.until = time.monotonic() + 1.0 - unix % 1.0
        self.line = f"Date: {http_date(unix)}\r\n"
        self.published = v1("OK").render(self.line)
