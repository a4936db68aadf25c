"""A small HTTP client: bounded answers, over one connection each or over connections that are kept."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar, cast

import httptools

from nsqc.log import Log
from nsqc.net.address import split_address
from nsqc.wire.outside import distrust

# ====================================================================== tasks
# Tasks whose failure is logged.

def reason_of(error: Exception, remedy: str = "") -> str:
    """The error of a peer, for the log. Unexpected errors are named: they are bugs. remedy: for a certificate whose
    authority is not known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return distrust(error.verify_code, error.verify_message, remedy)
    if isinstance(error, TimeoutError) and not str(error):
        return "timed out"
    expected = isinstance(error, (OSError, ValueError)) or type(error).__module__.startswith("nsqc.")
    return str(error) if expected and str(error) else repr(error)


# Any: the values exchanged between a coroutine and the loop are up to the loop
def spawn(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], log: Log) -> asyncio.Task[None]:
    """Starts a task. An exception that ends it is a bug of the daemon, and is logged at once."""
    task = loop.create_task(work)

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("%s ended: %r", getattr(work, "__qualname__", work), task.exception())

    task.add_done_callback(ended)
    return task


# ====================================================================== dial
# Outgoing connections: names are resolved on threads, and everything has a timeout.

SocketAddress = tuple[str, int] | tuple[str, int, int, int]
Endpoint = tuple[int, SocketAddress]  # address family and socket address, as socket calls take them


class Caller(asyncio.Protocol):
    """An asyncio protocol that can be aborted at any time, connected or not."""

    def abort(self) -> None:
        """Closes the connection at once."""
        raise NotImplementedError


C = TypeVar("C", bound=Caller)


def seconds(nanoseconds: int) -> float | None:
    """Converts a timeout option for asyncio; 0 means no limit."""
    return nanoseconds / 1e9 or None


class Dialer:
    """Resolves names and connects, for all peers of a daemon.

    Names are resolved on daemon threads, which a shutdown does not wait for. Concurrent lookups of one name are
    merged, so a hanging resolver costs one thread per name.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._lookups: dict[tuple[str, int, int], asyncio.Future[list[Endpoint]]] = {}

    async def resolve(self, address: str, kind: int) -> list[Endpoint]:
        """The endpoints of an address, at least one; kind is SOCK_STREAM or SOCK_DGRAM. Raises OSError, ValueError."""
        key = (*split_address(address), kind)
        with contextlib.suppress(socket.gaierror):
            return _endpoints(*key, socket.AI_NUMERICHOST)
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = self._loop.create_future()
            threading.Thread(target=self._look_up, args=(key, lookup), name="nsqc-resolver", daemon=True).start()
        # A caller that gives up must not cancel the lookup for the others.
        return await asyncio.shield(lookup)

    async def connect(self, make: Callable[[], C], address: str, limit_s: float | None,
                      tls: ssl.SSLContext | None = None, refuse: Callable[[str], str] | None = None) -> C:
        """Connects to the first endpoint that answers and, with tls, proves to be the address's host. refuse: returns
        the reason not to connect to an IP address, if there is one.

        Raises OSError (TimeoutError among them), ValueError.
        """
        name = split_address(address)[0] if tls else None
        deadline = None if limit_s is None else self._loop.time() + limit_s
        async with asyncio.timeout_at(deadline):
            endpoints = await self.resolve(address, socket.SOCK_STREAM)
        error: OSError | None = None
        if refuse is not None:
            reasons = [refuse(place[0]) for _, place in endpoints]
            endpoints = [endpoint for endpoint, reason in zip(endpoints, reasons, strict=True) if not reason]
            error = None if endpoints else OSError(reasons[0])
        for left in range(len(endpoints), 0, -1):
            # An endpoint that drops packets may use up its own share of the time, but not the others'.
            share = None if deadline is None else max(0.0, deadline - self._loop.time()) / left
            try:
                return await self._connect(make, endpoints[-left], share, tls, name)
            except OSError as failure:
                error = failure
        raise error or OSError(f"no address for {address}")

    async def _connect(self, make: Callable[[], C], endpoint: Endpoint, limit_s: float | None,
                       tls: ssl.SSLContext | None, name: str | None) -> C:
        family, address = endpoint
        protocol = make()
        try:
            async with asyncio.timeout(limit_s):
                await self._loop.create_connection(lambda: protocol, address[0], address[1], family=family, ssl=tls,
                                                   server_hostname=name)
        except BaseException:
            protocol.abort()
            raise
        return protocol

    # ------------------------------------------------------------------ names

    def _look_up(self, key: tuple[str, int, int], lookup: asyncio.Future[list[Endpoint]]) -> None:
        """Runs on a thread."""
        result: list[Endpoint] | Exception
        try:
            result = _endpoints(*key)
        except Exception as error:  # any error: unsettled, the name would never be resolved again
            result = error
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, key, lookup, result)

    def _settle(self, key: tuple[str, int, int], lookup: asyncio.Future[list[Endpoint]],
                result: list[Endpoint] | Exception) -> None:
        del self._lookups[key]
        if isinstance(result, list):
            lookup.set_result(result)
        else:
            lookup.set_exception(result)
            # Marks it as retrieved: the waiters may be gone.
            lookup.exception()


def _endpoints(host: str, port: int, kind: int, flags: int = 0) -> list[Endpoint]:
    # Only a Python without IPv6 has addresses of another shape.
    return [(family, cast("SocketAddress", address))
            for family, _, _, _, address in socket.getaddrinfo(host, port, type=kind, flags=flags)]


# ====================================================================== http

MAX_ANSWER = 4 * 1024 * 1024  # bytes, head and body


class AnswerError(Exception):
    """The response is not a complete HTTP answer of acceptable size."""


class NotHttp(AnswerError):
    """The response is not HTTP."""


class Ended(AnswerError):
    """The connection ended before an answer was complete. cause: why; None: the server closed it."""

    def __init__(self, cause: Exception | None = None) -> None:
        super().__init__("the connection ended within the answer")
        self.cause = cause


class Answer(NamedTuple):
    """An answer of any status."""

    status: int
    headers: dict[str, str]     # names in lower case
    body: bytes


class HttpConnection(Caller):
    """A connection to a server, for one exchange after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_open = False
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._used = False      # a request was sent
        self._begin(MAX_ANSWER, 0)

    def _begin(self, limit: int, most: int) -> None:
        self._answer: asyncio.Future[Answer] = self._loop.create_future()
        self._limit, self._most = limit, most
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._received = self._size = 0     # bytes, and those of the body
        self._in_body = self._delimited = False     # delimited: a header defines the end of the answer

    async def exchange(self, request: bytes, limit: int = MAX_ANSWER, most: int = 0) -> Answer:
        """Sends a request and returns the answer. limit: its bytes, head and body; a longer answer is an error. most:
        bytes of the body after which it is cut, and the connection closed; 0: never. Raises AnswerError."""
        if self._used:
            self._begin(limit, most)
        else:
            # The server may have answered already, without waiting for a request.
            self._used, self._limit, self._most = True, limit, most
        if self._transport is None or not self.is_open:
            self._fail(Ended())
        else:
            self._transport.write(request)
        return await self._answer

    def abort(self) -> None:
        """See Caller."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
        self._fail(Ended())

    def _fail(self, error: AnswerError) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)
            # Marks it as retrieved: the caller may have given up.
            self._answer.exception()

    def _complete(self) -> None:
        if not self._answer.done():
            self._answer.set_result(Answer(self._parser.get_status_code(), self._headers, b"".join(self._body)))

    # ------------------------------------------------------------------ called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        try:
            if self._received > self._limit:
                raise AnswerError(f"the answer is larger than {self._limit} bytes")
            self._parser.feed_data(data)
        except AnswerError as error:
            self._fail(error)
            self.abort()
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(NotHttp(f"the answer is not HTTP: {error}"))
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._in_body and not self._delimited and error is None:
            self._complete()    # without a length, the end of the connection is the end of the answer
        self._fail(Ended(error))

    # ------------------------------------------------------------------ called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        self._headers[key] = value.decode("latin-1")
        self._delimited |= key in ("content-length", "transfer-encoding")

    def on_headers_complete(self) -> None:
        self._in_body = self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._size += len(body)
        if self._most and self._size >= self._most:
            self._complete()
            self.abort()    # the rest of it is in transit

    def on_message_complete(self) -> None:
        if self._in_body:
            self.is_open &= self._parser.should_keep_alive()
            self._complete()


async def get(loop: asyncio.AbstractEventLoop, dialer: Dialer, address: str, target: str,
              connect_s: float | None) -> Answer:
    """The answer to `GET http://ADDRESS/TARGET`; otherwise like ask()."""
    return await ask(loop, dialer, address, request("GET", address, target), connect_s)


def request(method: str, host: str, target: str, *headers: str, body: bytes = b"") -> bytes:
    """Builds a request. host, target and headers must be ASCII without control characters (ValueError)."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "User-Agent: nsqc",
             "Accept: application/vnd.nsq; version=1.0", "Connection: close", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    if not all(line.isascii() and line.isprintable() for line in lines):
        raise ValueError("the address has characters that are not allowed in a URL")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def ask(loop: asyncio.AbstractEventLoop, dialer: Dialer, address: str, data: bytes, connect_s: float | None,
              tls: ssl.SSLContext | None = None) -> Answer:
    """Sends a request to an address and returns the answer. The caller limits the total time.

    Raises OSError or ValueError if it cannot connect, AnswerError if no complete answer arrives.
    """
    connection = await dialer.connect(lambda: HttpConnection(loop), address, connect_s, tls)
    try:
        return await connection.exchange(data)
    finally:
        connection.abort()
