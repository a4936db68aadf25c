"""One HTTP request for a handler, its route, and nsqd's rules for paths and queries."""

from __future__ import annotations

import re
import time
from binascii import unhexlify
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from nsqc.access.needs import OPEN, PUBLISHING, Need
from nsqc.httpd.reply import ApiError, Reply, v1, v1_error
from nsqc.log import Log
from nsqc.log.secrets import mask

if TYPE_CHECKING:
    from nsqc.access.keeper import Subject
    from nsqc.httpd.caller import Caller

# nsqd's boolParams. Flags and config files accept more words as booleans, by Go's strconv.ParseBool
# (nsqc.options.values.parse_bool).
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

    # Any: a site of any program
    async def call(self, site: Any, request: Request) -> Reply:
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
        self.may_create: Callable[[str, Callable[[str], bool]], str] | None = None  # nsqc.access.quotas.Account.create
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
