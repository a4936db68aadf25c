"""HTTP requests on a dedicated event loop, in a thread: concurrent, over persistent connections."""

from __future__ import annotations

import asyncio
import ssl
import threading
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast
from urllib.parse import quote_plus, unquote, urlsplit

import httptools
import uvloop

from nsqc.client.address import without_login
from nsqc.tools.declare import UsageError

# ====================================================================== url
# URLs to send messages to.

PLACEHOLDER = "%s"


class Url(NamedTuple):
    """text: for people, without the login. target: the path with its arguments, for the request line; for GET with %s
    for the message. login: user:password."""

    text: str
    is_tls: bool
    host: str
    port: int
    target: str
    login: str = ""

    @property
    def authority(self) -> str:
        """The Host header's value."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    @property
    def authorization(self) -> str:
        """The header for the login; empty without one."""
        return f"Authorization: Basic {b64encode(self.login.encode()).decode()}" if self.login else ""

    def with_body(self, body: bytes) -> str:
        """A GET's target with the message in it."""
        before, _, after = self.target.partition(PLACEHOLDER)
        return before + quote_plus(body) + after


def read_url(text: str) -> Url:
    """Raises UsageError."""
    shown = without_login(text) if "://" in text else text
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UsageError(f"{shown}: is not a URL; a port is a number, and a slash in a password must be %2F") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{shown}: is not a URL such as http://127.0.0.1:8080/messages")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or not target.isprintable() or " " in target:
        raise UsageError(f"{shown}: has characters not allowed in a URL")
    is_tls = parts.scheme == "https"
    login, at, _ = parts.netloc.rpartition("@")
    return Url(shown, is_tls, parts.hostname, port or (443 if is_tls else 80), target, unquote(login) if at else "")


# ====================================================================== exchange
# One persistent HTTP connection, as a protocol of the event loop.

HEAD_BYTES = 64 * 1024      # limit for the head of an answer


class Exchange(asyncio.Protocol):
    """ask() sends a request and returns the status. Bodies of answers are read and dropped."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: asyncio.Future[int] | None = None
        self._received = 0
        self._in_body = False
        self.was_used = False       # it has answered before: it may have been closed since
        self.has_answered = False   # bytes of the current answer have arrived
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def ask(self, request: bytes) -> asyncio.Future[int]:
        """Sends a request; returns the status of its answer, or an OSError or ValueError."""
        self._answer = self._loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._received, self._in_body, self.has_answered = 0, False, False
        if self._transport is not None:
            self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        """Parses."""
        self.has_answered = True
        if self._parser is None or self._answer is None:
            self.close()        # there was no request
            return
        if not self._in_body:
            self._received += len(data)
        try:
            if self._received > HEAD_BYTES and not self._in_body:
                raise ValueError("the head of the answer is too large")
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError) as error:
            self._settle(ValueError(f"not an HTTP answer: {error}"))
            self.close()

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._in_body = True

    def on_message_complete(self) -> None:
        """Called by the parser."""
        parser = self._parser
        if parser is None or self._answer is None:
            return
        status = parser.get_status_code()
        if status < 200:
            self._in_body = False       # 100 Continue: the answer follows
            return
        self.was_used = True
        if not parser.should_keep_alive():
            self.close()
        self._parser = None
        if not self._answer.done():
            self._answer.set_result(status)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection closed. Without a length, that ends an answer."""
        self.is_open = False
        if self._in_body and error is None and self._parser is not None and self._answer is not None:
            if not self._answer.done():
                self._answer.set_result(self._parser.get_status_code())
            return
        self._settle(error or ConnectionResetError("the connection was closed"))

    def _settle(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
            self._answer.exception()        # marks it as retrieved: the caller may have given up

    def close(self) -> None:
        """Closes at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


# ====================================================================== sender

MOST_IDLE = 128     # connections kept per URL


class Request(NamedTuple):
    """token: the sender's own reference for it."""

    token: object
    url: Url
    head: bytes
    body: bytes


class Outcome(NamedTuple):
    """status: 0 if there was no answer; error: why. seconds: the duration of the request."""

    token: object
    url: Url
    status: int
    error: str
    seconds: float


class Sender:
    """connect, total: timeouts for connecting, and for a whole request. wake: called when outcomes are available.
    Raises OSError, ssl.SSLError for unusable certificates."""

    def __init__(self, connect: float, total: float, tls: ssl.SSLContext | None, wake: Callable[[], None]):
        self._connect, self._total, self._tls, self._wake = connect, total, tls, wake
        self._outcomes: deque[Outcome] = deque()
        self._idle: dict[Url, list[Exchange]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def send(self, requests: Iterable[Request]) -> None:
        """Starts requests; each gets an outcome later."""
        batch = list(requests)
        if batch:
            self._loop.call_soon_threadsafe(self._begin, batch)

    def outcomes(self) -> list[Outcome]:
        """Outcomes since the last call."""
        found = []
        while self._outcomes:
            found.append(self._outcomes.popleft())
        return found

    def close(self) -> None:
        """Cancels all requests without an outcome."""
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join()

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        for exchanges in self._idle.values():
            for exchange in exchanges:
                exchange.close()
        self._loop.call_soon(self._loop.stop)

    # ------------------------------------------------------------------ on the loop

    def _begin(self, requests: list[Request]) -> None:
        for request in requests:
            task = self._loop.create_task(self._carry_out(request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, request: Request) -> None:
        began = self._loop.time()
        status, error = 0, ""
        try:
            async with asyncio.timeout(self._total):
                status = await self._ask(request)
        except TimeoutError:
            error = "no answer in time"
        except ssl.SSLError as failure:
            error = f"TLS: {failure.reason or failure}"
        except OSError as failure:
            error = failure.strerror or str(failure)
        except ValueError as failure:
            error = str(failure)
        self._outcomes.append(Outcome(request.token, request.url, status, error, self._loop.time() - began))
        self._wake()

    async def _ask(self, request: Request) -> int:
        data = request.head + request.body
        while True:
            exchange = self._taken(request.url)
            is_fresh = exchange is None
            if exchange is None:
                exchange = await self._connected(request.url)
            try:
                status = await exchange.ask(data)
            except BaseException as error:
                exchange.close()
                # The server closed an idle connection before it saw the request.
                if isinstance(error, OSError) and not is_fresh and not exchange.has_answered:
                    continue
                raise
            idle = self._idle.setdefault(request.url, [])
            if exchange.is_open and len(idle) < MOST_IDLE:
                idle.append(exchange)
            else:
                exchange.close()
            return status

    def _taken(self, url: Url) -> Exchange | None:
        idle = self._idle.get(url)
        while idle:
            exchange = idle.pop()
            if exchange.is_open:
                return exchange
        return None

    async def _connected(self, url: Url) -> Exchange:
        async with asyncio.timeout(self._connect):
            _, exchange = await self._loop.create_connection(
                lambda: Exchange(self._loop), url.host, url.port, ssl=self._tls if url.is_tls else None,
                server_hostname=url.host if url.is_tls else None)
        return exchange
