"""One HTTP request as a handler sees it, and the rules by which the original reads paths and queries."""

import re
import time
from collections.abc import Callable
from typing import Any

from nsqc.httpd.reply import ApiError

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_METHOD_AND_SPACE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+(?= )")
_PARSERS_METHODS = frozenset(
    b"ACL BIND CHECKOUT CONNECT COPY DELETE GET HEAD LINK LOCK M-SEARCH MERGE MKACTIVITY MKCALENDAR MKCOL MOVE NOTIFY "
    b"OPTIONS PATCH POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT SEARCH SOURCE SUBSCRIBE TRACE UNBIND UNLINK "
    b"UNLOCK UNSUBSCRIBE".split())


class Request:
    """A request from its head on; the body is filled in when it has come."""

    __slots__ = ("body", "broken", "dropped", "http10", "keep_alive", "length", "method", "param", "path", "query",
                 "remote", "route", "started", "url")

    def __init__(self, method: bytes, url: bytes, remote: str = "", length: int = 0, http10: bool = False,
                 keep_alive: bool = True) -> None:
        self.method = method
        self.url = url                  # as it came
        self.path, self.query = split_url(url)
        self.remote = remote            # HOST:PORT of the client
        self.length = length            # of the body as announced, bytes; -1: chunked
        self.http10 = http10
        self.keep_alive = keep_alive
        self.body = b""                 # at most one byte more than the route allows
        self.broken = False             # the body ended early or was malformed
        self.dropped: Callable[[], Any] | None = None   # called when the client goes or the server closes meanwhile
        self.route: Any = None
        self.param = ""                 # what stands for the wildcard of the route
        self.started = time.perf_counter_ns()

    def arguments(self) -> dict[bytes, bytes]:
        """The first value of every key in the query; ValueError says why where it is malformed."""
        found: dict[bytes, bytes] = {}
        for part in self.query.split(b"&"):
            if not part:
                continue
            if b";" in part:
                raise ValueError("invalid semicolon separator in query")
            key, _, value = part.partition(b"=")
            found.setdefault(unescape(key), unescape(value))
        return found


def split_url(url: bytes) -> tuple[bytes, bytes]:
    """Path (unescaped) and query (raw) of a request target, also of an absolute one; ValueError: a bad escape."""
    if not url.startswith(b"/") and b"://" in url:
        rest = url.partition(b"://")[2]
        start = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
        url = rest[start:]
    path, _, query = url.partition(b"?")
    if b"%" in path:
        _refuse_bad_escape(path)
        path = _unquote(path)
    return path, query


def unescape(text: bytes) -> bytes:
    """A key or value of a query: plus signs are spaces, %XX are bytes; ValueError: a bad escape."""
    if b"+" in text:
        text = text.replace(b"+", b" ")
    if b"%" not in text:
        return text
    _refuse_bad_escape(text)
    return _unquote(text)


def _unquote(text: bytes) -> bytes:
    from urllib.parse import unquote_to_bytes  # here, for names and most arguments have no escapes

    return unquote_to_bytes(text)


def _refuse_bad_escape(text: bytes) -> None:
    bad = _BAD_ESCAPE.search(text)
    if bad is not None:
        shown = text[bad.start():bad.start() + 3].decode("latin-1")
        raise ValueError(f'invalid URL escape "{shown}"')


def unknown_method(data: bytes | memoryview) -> bytes:
    """The method of the request that data begins with, if the parser does not know it; else empty."""
    found = _METHOD_AND_SPACE.match(data)
    return b"" if found is None or found[0] in _PARSERS_METHODS else bytes(found[0])


def read_arguments(app: Any, request: Request) -> dict[bytes, bytes]:
    """The query's arguments, or ApiError INVALID_REQUEST and a line in the log."""
    try:
        return request.arguments()
    except ValueError as bad:
        app.log.error("failed to parse request params - %s", bad)
        raise ApiError(400, "INVALID_REQUEST") from None


def read_whole(app: Any, request: Request) -> dict[bytes, bytes]:
    """As read_arguments, for the calls that want the body to have come as well, though they ignore it."""
    arguments = read_arguments(app, request)
    if request.broken:
        app.log.error("failed to parse request params - %s", "unexpected EOF")
        raise ApiError(400, "INVALID_REQUEST")
    return arguments
