"""HTTP calls to nodes: connections that are kept, bounded in number for each node and in total, with time limits."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote
from weakref import WeakValueDictionary

import msgspec

from nsqc.admin.trust import Trust
from nsqc.peers.dial import Dialer
from nsqc.peers.http import Answer, AnswerError, Ended, HttpConnection, NotHttp
from nsqc.wire.nodehosts import ip_of
from nsqc.wire.outside import Decoder, JSONError

LONGEST = 256 * 1024 * 1024         # bytes of an answer about all topics: /stats of 100,000 is a fifth of it
MOST_OF_STRANGERS = 64 * 1024 * 1024    # bytes of an answer of a node that only a lookup server names
MOST_ANSWER = 32 * 1024 * 1024      # bytes of any other answer
PER_NODE = 4                        # calls to one node at once
AT_ONCE = 32                        # calls to all nodes at once
IDLE_S = 30.0                       # an idle connection is closed after this time
IDLE_PER_NODE = 2
MOST_ADDRESSES = 10_000     # whose HTTPS is known; it is asked for again
SHOWN = 2000                        # characters of an answer that are quoted in an error
_quoted = msgspec.json.Encoder().encode


class UpstreamError(Exception):
    """A node did not answer, or not as it should. The text is in the words of Go's http package, as nsqadmin's."""

    def __init__(self, text: str, status: int = 0, word: str = "") -> None:
        super().__init__(text)
        self.status = status    # of the node's answer; 0: there was none
        self.word = word        # the node's word for the reason, such as TOPIC_NOT_FOUND

    @property
    def short(self) -> str:
        """The node's word, or the text."""
        return self.word or str(self)


class Ask(NamedTuple):
    """A call of a node's HTTP API. most: bytes of the answer after which it is cut and the connection closed."""

    method: str
    target: str
    body: bytes = b""
    accept: str = "application/vnd.nsq; version=1.0"
    most: int = 0
    timeout_s: float = 0.0      # beyond the usual limit, for long polls
    limit: int = MOST_ANSWER    # bytes; a longer answer is an error


INFO = Ask("GET", "/info", limit=64 * 1024)
LOOKUP_NODES, LOOKUP_TOPICS = (Ask("GET", path, limit=LONGEST) for path in ("/nodes", "/topics"))


class _Refusal(msgspec.Struct):
    """The body of an error."""

    message: object = ""
    https_port: object = 0


_refusal = Decoder(_Refusal)


def word_of(body: bytes) -> str:
    """The word for the reason in an error answer; empty if it has none."""
    try:
        found = _refusal.decode(body).message
    except JSONError:
        return ""
    return found if isinstance(found, str) else ""


def checked(answer: Answer) -> bytes:
    """The body of a 200. Raises UpstreamError for anything else, as nsqadmin words it."""
    if answer.status == 200:
        return answer.body
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = ""
    text = _quoted(answer.body[:SHOWN].decode("utf-8", "replace")).decode()
    raise UpstreamError(f"got response {answer.status} {phrase} {text}", answer.status, word_of(answer.body))


def target(path: str, **arguments: object) -> str:
    """A path with a query; arguments that are None are left out."""
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in arguments.items() if value is not None)
    return f"{path}?{query}" if query else path


class HttpNodes:
    """Nodes over HTTP. Addresses are HOST:PORT."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, connect_s: float, request_s: float,
                 trust: Trust, tls: ssl.SSLContext | None = None, secret: str = "") -> None:
        """trust: of nodes. tls: for nodes that want HTTPS; None: the system's authorities. secret: a token for access
        files, for trusted nodes alone, and over HTTPS for all nodes that have it."""
        self._loop = loop
        self._dialer = Dialer(loop)
        self._connect_s, self._request_s = connect_s, request_s
        self._trust, self._tls, self._secret = trust, tls, secret
        self._all = asyncio.Semaphore(AT_ONCE)
        self._each: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()     # of calls in progress
        self._idle: dict[str, deque[_Connection]] = {}
        self._https: dict[str, str] = {}        # addresses that want HTTPS, and where they have it

    async def ask(self, address: str, ask: Ask) -> Answer:
        """See nsqc.admin.fleet.AskNode."""
        each = self._each.get(address) or self._each.setdefault(address, asyncio.Semaphore(PER_NODE))
        async with each, self._all:
            over_http = address not in self._https      # others may learn of the port while this one is answered
            answer = await self._tried(address, ask)
            if over_http and answer.status == 403 and self._wants_https(address, answer):
                answer = await self._tried(address, ask)
        if answer.status == 401 and self._secret and not self._trust.is_trusted(address):
            word = word_of(answer.body)
            raise UpstreamError(f"{word}; {self._trust.withheld(address)}", answer.status, word)
        return answer

    def _wants_https(self, address: str, answer: Answer) -> bool:
        """Whether an answer over HTTP names a port for HTTPS, which is used from now on."""
        port = _https_port(answer)
        if port and address not in self._https:
            if len(self._https) >= MOST_ADDRESSES:
                del self._https[next(iter(self._https))]
            self._https[address] = f"{address.rpartition(':')[0]}:{port}"
            self._drop(address)     # these speak HTTP
        return bool(port)

    async def _tried(self, address: str, ask: Ask) -> Answer:
        """Makes a call. The node may have closed an idle connection, so a change gets a new one: otherwise it would be
        unknown whether it arrived. Reads are repeated."""
        secret = self._secret if self._trust.is_trusted(address) else ""
        try:
            async with asyncio.timeout(self._request_s + ask.timeout_s):
                kept = self._kept(address) if ask.method == "GET" else None
                if kept is not None:
                    with suppress(Ended):
                        return await self._exchange(kept, address, ask, secret)
                return await self._exchange(await self._dial(address, secret), address, ask, secret)
        except TimeoutError:
            raise UpstreamError(f'{_verb(ask)} "{self._url(address, ask)}": context deadline exceeded '
                                "(Client.Timeout exceeded while awaiting headers)") from None
        except (OSError, ValueError, AnswerError) as error:
            raise UpstreamError(f'{_verb(ask)} "{self._url(address, ask)}": {_reason(address, error)}') from None

    def _url(self, address: str, ask: Ask) -> str:
        return f"{'https' if address in self._https else 'http'}://{address}{ask.target}"

    def _kept(self, address: str) -> _Connection | None:
        """A connection that is open, of those kept."""
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if connection.is_open and self._loop.time() - connection.since < IDLE_S:
                return connection
            connection.abort()
        return None

    async def _dial(self, address: str, secret: str) -> _Connection:
        """A new connection, on which the secret may be sent: without TLS, it first asks whether the node has HTTPS."""
        connection = await self._connect(address)
        if not secret or address in self._https:
            return connection
        try:
            answer = await connection.exchange(_request(address, INFO, ""), INFO.limit)
        except BaseException:
            connection.abort()
            raise
        # What stays on this machine needs no TLS, unless the node requires it.
        stays = answer.status != 403 and connection.is_local
        if connection.is_open and (stays or not self._wants_https(address, answer)):
            return connection
        connection.abort()
        return await self._connect(address)

    async def _connect(self, address: str) -> _Connection:
        place = self._https.get(address, address)
        context = None if place == address else (self._tls or ssl.create_default_context())
        connection = await self._dialer.connect(lambda: _Connection(self._loop), place, self._connect_s, context,
                                                lambda ip: self._trust.why_unreachable(address, ip))
        connection.place = place
        return connection

    async def _exchange(self, connection: _Connection, address: str, ask: Ask, secret: str) -> Answer:
        limit = ask.limit if self._trust.is_trusted(address) else min(ask.limit, MOST_OF_STRANGERS)
        try:
            answer = await connection.exchange(_request(address, ask, secret), limit, ask.most)
        except BaseException:
            connection.abort()
            raise
        idle = self._idle.get(address, deque())
        # One that speaks HTTP is of no use once the node is known to want HTTPS.
        is_usable = connection.is_open and connection.place == self._https.get(address, address)
        if is_usable and len(idle) < IDLE_PER_NODE:
            connection.since = self._loop.time()
            idle.append(connection)
            self._idle[address] = idle
            self._loop.call_later(IDLE_S, self._expire, address)
        else:
            connection.abort()
        return answer

    def _expire(self, address: str) -> None:
        """Closes connections that were idle for long: the node may be gone."""
        idle = self._idle.get(address, deque())
        while idle and self._loop.time() - idle[0].since >= IDLE_S:
            idle.popleft().abort()
        if not idle:
            self._idle.pop(address, None)

    def close(self) -> None:
        """Closes the connections that are kept."""
        for address in [*self._idle]:
            self._drop(address)

    def _drop(self, address: str) -> None:
        for connection in self._idle.pop(address, ()):
            connection.abort()


class _Connection(HttpConnection):
    """A connection to a node."""

    place = ""          # the HOST:PORT that it was dialled by
    since = 0.0         # loop time since which it is idle

    @property
    def is_local(self) -> bool:
        """Whether it goes to a loopback address."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        ip = ip_of(peer[0]) if peer else None
        return ip is not None and ip.is_loopback


def _request(address: str, ask: Ask, secret: str) -> bytes:
    lines = [f"{ask.method} {ask.target} HTTP/1.1", f"Host: {address}", "User-Agent: nsqc-admin",
             f"Accept: {ask.accept}"]
    if secret:
        lines.append(f"Authorization: Bearer {secret}")
    if ask.body or ask.method != "GET":
        lines.append(f"Content-Length: {len(ask.body)}")
    if not all(line.isascii() and line.isprintable() for line in lines):
        raise ValueError("invalid character in host name or path")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + ask.body


def _https_port(answer: Answer) -> int:
    """The port of a node's HTTPS, if an answer names it: as nsqd's to clients that must use it, and nsqc's /info and
    refusals of clients without a token."""
    if b"https_port" not in answer.body:
        return 0
    try:
        port = _refusal.decode(answer.body).https_port
    except JSONError:
        return 0
    return port if isinstance(port, int) and 0 < port < 65536 else 0


def _verb(ask: Ask) -> str:
    return ask.method.capitalize()


def _reason(address: str, error: Exception) -> str:
    """As Go's net package has it."""
    if isinstance(error, ConnectionRefusedError):
        return f"dial tcp {address}: connect: connection refused"
    if isinstance(error, ssl.SSLError):
        return f"tls: {error.reason or error}"
    if isinstance(error, NotHttp):
        return "malformed HTTP response"
    if isinstance(error, Ended):
        return str(error.cause or "EOF")
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
