"""Answers of handlers, and their bytes on the wire, with nsqd's headers."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import select
import time
from binascii import unhexlify
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec

from nsqc.access.needs import OPEN, PUBLISHING, Need
from nsqc.log import Log
from nsqc.log.formats import mask
from nsqc.loop.slow import promise

if TYPE_CHECKING:
    from nsqc.access.keeper import Subject
    from nsqc.httpd.gate import Caller


# ====================================================================== streaming
# Bodies sent piece by piece, as fast as the client reads: they are never in memory as a whole.
#
# A worker thread makes each piece, and without TLS also sends it, straight to the socket. An answer to a client that
# does not read takes one piece and no thread.

Result = TypeVar("Result")

# A TLS transport buffers this much, and gets it in one piece; others pass all bytes on at once.
_TLS_BUFFER_BYTES = 64 * 1024
_SENT_AT_ONCE = 8 * 1024 * 1024     # by a thread, before it serves other clients
_KEPT_BYTES = 16 * 1024             # passed to the transport, so it reports when there is room again
_WRITTEN_AT_ONCE = 1024 * 1024      # in one system call
_PARTS_AT_ONCE = 64
_PIECE_BYTES = 128 * 1024
_PATIENCE_MS = 2                    # a reading client makes room before the loop could report it
_LAST_CHUNK = b"0\r\n\r\n"

Make = Callable[[int, bool], bytes]     # (about how many bytes, framed as a chunk); returns a piece; b"" at the end


class Stream:
    """A body."""

    length: int | None = None           # bytes; None: unknown until its end
    left: int                           # unsent bytes; for a stream without a length, 0 once all is sent
    patience_s: float | None = None     # how long its client may accept nothing; None: no limit

    @property
    def in_memory(self) -> int:
        """Approximate bytes in memory."""
        return 0        # only a piece, while it is sent

    def send(self, socket: int) -> bytes:
        """Sends to a non-blocking socket for some milliseconds; returns the bytes that the transport has to send next.

        Runs on a worker thread. socket: a descriptor; -1: the transport sends everything. Raises OSError if the rest is
        unreadable.
        """
        raise NotImplementedError


class HeldPage(Stream):
    """A long body in memory, in parts. The loop copies none of it to the socket."""

    def __init__(self, parts: list[bytes], patience_s: float | None) -> None:
        self.patience_s = patience_s
        self._parts = deque(memoryview(part)[at:at + _WRITTEN_AT_ONCE] for part in parts
                            for at in range(0, len(part), _WRITTEN_AT_ONCE))
        self.length = self.left = sum(map(len, self._parts))
        self._spent = 0     # sent bytes of the first part

    @property
    def in_memory(self) -> int:
        return self.left + self._spent

    def send(self, socket: int) -> bytes:
        allowed = _SENT_AT_ONCE if socket >= 0 else 0
        while self._parts and allowed > 0:
            try:
                sent = os.writev(socket, list(islice(self._parts, _PARTS_AT_ONCE)))
            except (BlockingIOError, ConnectionError):
                break       # the transport will report the cause
            allowed -= sent
            self._skip(sent)
        else:
            if self._parts and socket >= 0:
                return b""
        return self._take(_KEPT_BYTES if socket >= 0 else _TLS_BUFFER_BYTES)

    def _take(self, count: int) -> bytes:
        """The next bytes, at most count."""
        taken = b""
        if self._parts:
            taken = bytes(self._parts[0][:count])
            self._skip(len(taken))
        return taken

    def _skip(self, count: int) -> None:
        """Counts bytes as sent, and frees their parts."""
        self.left -= count
        while count:
            part = self._parts.popleft()
            taken = min(len(part), count)
            if taken < len(part):
                self._parts.appendleft(part[taken:])
            count -= taken
            self._spent += taken
            if not self._parts or self._parts[0].obj is not part.obj:
                self._spent = 0


class Pieces(Stream):
    """An answer of unknown length, made in pieces by a worker thread and sent as chunks."""

    def __init__(self, make: Make, first: bytes, last: bytes, patience_s: float) -> None:
        """first, last: short texts sent before and after the pieces. make is called on worker threads."""
        self.patience_s = patience_s
        self.left = 1           # until all is sent
        self.chunked = True     # else the end of the connection ends the answer
        self._make = make
        self._first = first
        self._last = last
        self._piece = memoryview(b"")
        self._made = False      # this is the last piece

    @property
    def in_memory(self) -> int:
        return len(self._piece)

    def send(self, socket: int) -> bytes:
        allowed = _SENT_AT_ONCE
        while allowed > 0:
            if not self._piece and not self._next():
                self.left = 0
                return b""
            if socket < 0:
                break
            try:
                sent = os.write(socket, self._piece)
            except BlockingIOError:
                if not _has_room_soon(socket):
                    break
                continue
            except ConnectionError:
                break
            self._piece = self._piece[sent:]
            allowed -= sent
        else:
            return b""
        kept = _PIECE_BYTES if socket < 0 else _KEPT_BYTES
        data, self._piece = bytes(self._piece[:kept]), self._piece[kept:]
        return data

    def _next(self) -> bool:
        """Makes the next piece; False: all is sent."""
        if self._made:
            return False
        if self._first:
            piece, self._first = self._framed(self._first), b""
        else:
            piece = self._make(_PIECE_BYTES, self.chunked)
            if not piece:
                self._made = True
                piece = self._framed(self._last) + (_LAST_CHUNK if self.chunked else b"")
        self._piece = memoryview(piece)
        return bool(piece)

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self.chunked and data else data


def _has_room_soon(socket: int) -> bool:
    poll = select.poll()
    poll.register(socket, select.POLLOUT)
    return bool(poll.poll(_PATIENCE_MS))


class Readers:
    """Worker threads that read files for clients: a few of the daemon's, so other work always finds a free one."""

    def __init__(self, threads: Executor, most: int) -> None:
        self._threads = threads
        self._free = asyncio.Semaphore(most)
        # Held during long work, which calls run() for each part: short work runs in between.
        self.long = asyncio.Lock()

    async def run(self, call: Callable[[], Result]) -> Result:
        """Runs a call on a thread, in order of arrival."""
        async with self._free:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def send(self, stream: Stream, transport: asyncio.Transport, tls: bool) -> bytes:
        """The same for a stream's send(); b"": all is sent."""
        async with self._free:
            # The transport may close its descriptor meanwhile, and another client may get its number.
            socket = -1 if tls or transport.is_closing() else _duplicate(transport)
            return await asyncio.get_running_loop().run_in_executor(self._threads, _send, stream, socket)


def _duplicate(transport: asyncio.Transport) -> int:
    try:
        return os.dup(transport.get_extra_info("socket").fileno())
    except OSError:
        return -1       # no descriptor is free: the transport sends


def _send(stream: Stream, socket: int) -> bytes:
    try:
        return stream.send(socket)
    finally:
        if socket >= 0:
            os.close(socket)


class Feeder:
    """Sends one stream after the head of its answer."""

    def __init__(self, readers: Readers, transport: asyncio.Transport, tls: bool, stream: Stream) -> None:
        self.paused = False             # the transport has unsent bytes that the client does not accept
        self._readers = readers
        self._transport = transport
        self._tls = tls
        self._stream = stream
        self._gone = False
        self._wake: Callable[..., None] = lambda: None
        # Worker threads send after the transport's bytes: it must not buffer any unnoticed.
        transport.set_write_buffer_limits(high=_TLS_BUFFER_BYTES if tls else 0)

    async def run(self) -> None:
        """Returns when all is sent, or the client is gone. Raises OSError if the rest cannot be sent."""
        while self._stream.left and not self._gone:
            if self.paused:
                room, self._wake = promise()
                try:
                    await asyncio.wait_for(room, self._stream.patience_s)
                except TimeoutError:
                    raise OSError(errno.ETIMEDOUT, "the client reads nothing") from None
                continue
            data = await self._readers.send(self._stream, self._transport, self._tls)
            if data and not self._gone:
                self._transport.write(data)
        if not self._transport.is_closing():
            self._transport.set_write_buffer_limits()

    def in_memory(self) -> int:
        """Bytes of the body that are in memory."""
        return self._stream.in_memory

    def resume(self) -> None:
        """The transport has room again."""
        self.paused = False
        self._wake()

    def stop(self) -> None:
        """The client is gone."""
        self._gone = True
        self._wake()


# ====================================================================== reply

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
        self.stream = HeldPage([self.body, *self.parts], patience_s)
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


# ====================================================================== request
# One HTTP request for a handler, its route, and nsqd's rules for paths and queries.

# nsqd's boolParams. Flags and config files accept more words as booleans, by Go's strconv.ParseBool
# (nsqc.options.option.parse_bool).
BOOLEANS = {b"true": True, b"1": True, b"false": False, b"0": False}
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_SHOWN = 200    # bytes of a target
# SCHEME://AUTHORITY, as sent to proxies.
_AUTHORITY = re.compile(rb"[A-Za-z][A-Za-z0-9+\-.]*://(?:[^/?]*@)?([A-Za-z0-9!$%&'()*+,\-.:;=\[\]_~]*)(?=[/?]|$)")

# Returns data for Route.reply, a Reply, or an awaitable of either; raises ApiError to refuse.
# Any: the site, of a type that its own handlers know
Handler = Callable[[Any, "Request"], object]


class Route(NamedTuple):
    """One call of the API."""

    handler: Handler
    need: Need                                                      # the grants that its client needs
    reply: Callable[[object], Reply] = v1                           # converts data to a Reply
    error: Callable[[int, str], Reply] = v1_error                   # converts an ApiError to a Reply
    logged: bool = True                                             # each request is logged
    body_limit: int | str | None = None     # bytes of body to keep, or the option with that number; None: 0
    reads_body: bool = False                                        # answers Expect: 100-continue

    def reply_for(self, data: object) -> Reply:
        """Converts a result of the handler to an answer."""
        return data if isinstance(data, Reply) else self.reply(data)

    async def call(self, site: object, request: Request) -> Reply:
        """Calls the handler, and waits for its answer. Raises its errors."""
        data = self.handler(site, request)
        return self.reply_for(await cast("Awaitable[object]", data) if hasattr(data, "__await__") else data)


def fixed(reply: Reply) -> Route:
    """A route that always gives this answer."""
    return Route(lambda app, request: reply, OPEN, logged=False)


class Request:
    """A request with a complete head; the body follows."""

    __slots__ = ("_dropped", "_when_dropped", "accept", "authorization", "body", "broken", "caller", "foreign",
                 "from_page", "head", "host", "http10", "keep_alive", "length", "made", "may_create", "method", "param",
                 "path", "publish_id", "query", "refusal", "remote", "route", "started", "subject", "url", "user")

    route: Route                        # set right after construction: the router needs a request to resolve
    caller: Caller                      # its client; set by the reader, before routing

    def __init__(self, method: bytes, url: bytes, remote: str = "", length: int = 0, http10: bool = False,
                 keep_alive: bool = True) -> None:
        self.method = method
        self.url = url                  # as received
        # CONNECT names a host and a port, no path.
        self.path, self.query = split_url(url) if method != b"CONNECT" or url.startswith(b"/") else (b"", b"")
        self.remote = remote            # HOST:PORT of the client
        self.length = length            # announced size of the body, bytes; -1: chunked
        self.http10 = http10
        self.keep_alive = keep_alive
        self.head = b""                 # as received, for handlers that need other headers: see header()
        self.accept = b""               # the header; empty without one
        self.authorization: bytes | None = None     # the header: a secret, never shown
        self.host: bytes | None = None  # the header
        self.publish_id: bytes | None = None    # X-NSQ-Publish-Id
        self.from_page = False          # sent by a browser for a web page
        self.foreign = False            # and that page has another origin
        self.body = b""                 # at most one byte more than the route permits
        self.broken = False             # the body ended early or was malformed
        self.param = ""                 # last part of the path, for a wildcard route
        self.made = 0                   # topics and channels that its handler created, or tried to
        self.started = time.perf_counter_ns()
        # From the access file, if any.
        self.user = ""
        self.subject: Subject | None = None     # the client, once its call is permitted
        self.refusal = ""               # why the call is not permitted
        self.may_create: Callable[[str, Callable[[str], bool]], str] | None = None  # nsqc.access.keeper.Account.create
        self._dropped = False
        self._when_dropped: Callable[[], object] | None = None

    def when_dropped(self, call: Callable[[], object]) -> None:
        """Sets a function to call if the client leaves or the server closes first; calls it at once if that has already
        happened. Replaces an earlier one."""
        self._when_dropped = call
        if self._dropped:
            call()

    def drop(self) -> None:
        """Notifies its handler that the client no longer waits for the answer."""
        self._dropped = True
        if self._when_dropped is not None:
            self._when_dropped()

    def header(self, name: str) -> str:
        """The first value of a header that the reader does not extract; empty without one."""
        return next(self._headers(name), "")

    def sole_header(self, name: str) -> str:
        """The same; empty if there are several: a client may have sent one, and a proxy added its own."""
        values = [*self._headers(name)]
        return values[0] if len(values) == 1 else ""

    def _headers(self, name: str) -> Iterator[str]:
        wanted = name.lower().encode("latin-1", "replace")
        for line in self.head.split(b"\n")[1:]:
            key, colon, value = line.partition(b":")
            if colon and key.lower() == wanted:
                yield value.strip().decode("latin-1")

    def __str__(self) -> str:
        """For the log: method, target and client."""
        target = mask(self.url.decode("latin-1"))[:_SHOWN]
        return f"{self.method.decode('latin-1')} {target} ({self.remote})"

    def arguments(self) -> dict[bytes, bytes]:
        """The first value of each key in the query; ValueError: malformed."""
        arguments: dict[bytes, bytes] = {}
        for part in self.query.split(b"&"):
            if not part:
                continue
            if b";" in part:
                raise ValueError("invalid semicolon separator in query")
            key, _, value = part.partition(b"=")
            arguments.setdefault(unescape(key), unescape(value))
        return arguments


def is_foreign(host: bytes | None, origin: bytes | None, fetch_site: bytes | None) -> bool:
    """Whether a browser has sent a request for a web page of another origin, judging by its headers.

    Sec-Fetch-Site decides, if a browser sends it: a proxy may have replaced the Host. Other browsers send an Origin,
    which must have the same host and port.
    """
    if fetch_site:
        return fetch_site not in (b"same-origin", b"none")
    if origin is None:
        return False
    _, separator, authority = origin.partition(b"://")
    return not separator or authority.lower() != (host or b"").lower()


def split_url(url: bytes) -> tuple[bytes, bytes]:
    """Path (unescaped) and query (raw) of a request target, which may be absolute; ValueError: malformed."""
    if not url.startswith(b"/") and url != b"*":
        authority = _AUTHORITY.match(url)
        if authority is None:
            raise ValueError("invalid URI for request")
        url = url[authority.end():]
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
    """Unescapes text with valid escapes. Importing urllib.parse for this would block the loop for milliseconds."""
    first, *parts = text.split(b"%")
    return first + b"".join(unhexlify(part[:2]) + part[2:] for part in parts)


def _refuse_bad_escape(text: bytes) -> None:
    bad = _BAD_ESCAPE.search(text)
    if bad is not None:
        shown = text[bad.start():bad.start() + 3].decode("latin-1")
        raise ValueError(f'invalid URL escape "{shown}"')


def read_arguments(log: Log, request: Request) -> dict[bytes, bytes]:
    """The query's arguments, or ApiError INVALID_REQUEST and a line in the log."""
    try:
        return request.arguments()
    except ValueError as bad:
        log.error("failed to parse request params - %s", bad)
        raise ApiError(400, "INVALID_REQUEST") from None


def may_publish(request: Request, topic: str) -> bool:
    """Whether the client of a permitted call may publish to a topic, too."""
    return request.subject is None or bool(request.subject.reason(PUBLISHING, topic))


def check_publish(request: Request, topic: str) -> None:
    """Raises ApiError if the node would publish to a topic for a client that may not."""
    if not may_publish(request, topic):
        raise ApiError(403, f"FORBIDDEN - user {request.user} has no grant publish for topic {topic}, which would get "
                       "messages")


def boolean_in(arguments: dict[bytes, bytes], key: bytes) -> bool:
    """The value of a boolean argument; False if it is missing. Raises ApiError."""
    value = BOOLEANS.get(arguments.get(key, b"false"))
    if value is None:
        raise ApiError(400, f"INVALID_ARG_{key.decode().upper()}")
    return value


def read_whole(log: Log, request: Request) -> dict[bytes, bytes]:
    """Like read_arguments, for calls that also require the whole body, though they ignore it."""
    arguments = read_arguments(log, request)
    if request.broken:
        log.error("failed to parse request params - %s", "unexpected EOF")
        raise ApiError(400, "INVALID_REQUEST")
    return arguments
