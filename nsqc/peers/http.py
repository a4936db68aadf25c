"""A small HTTP client for the daemon's few requests: one request, one bounded answer, one connection."""

from __future__ import annotations

import asyncio
import ssl
from typing import NamedTuple, cast

import httptools

from nsqc.peers.dial import Caller, Dialer

MAX_ANSWER = 4 * 1024 * 1024  # bytes, head and body


class AnswerError(Exception):
    """The response is not a complete HTTP answer of acceptable size."""


class Answer(NamedTuple):
    """A server's answer; location is the target of a redirect, or empty."""

    status: int
    body: bytes
    location: str


class _Exchange(Caller):
    """One request and its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, request: bytes):
        self.answer: asyncio.Future[Answer] = loop.create_future()
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._location = ""
        self._received = 0
        self._delimited = False     # a header defines the end of the answer
        self._in_body = False

    def abort(self) -> None:
        self.answer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _settle(self, error: AnswerError | None = None) -> None:
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(Answer(self._parser.get_status_code(), b"".join(self._body), self._location))
        else:
            self.answer.set_exception(error)
            # Marks it as retrieved: the caller may have given up.
            self.answer.exception()

    # ------------------------------------------------------------------ called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        try:
            if self._received > MAX_ANSWER:
                raise AnswerError(f"the answer is larger than {MAX_ANSWER} bytes")
            self._parser.feed_data(data)
        except AnswerError as error:
            self._settle(error)
            self.abort()
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._settle(AnswerError(f"the answer is not HTTP: {error}"))
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        # Without a length, the end of the connection is the end of the answer.
        complete = self._in_body and not self._delimited and error is None
        self._settle(None if complete else AnswerError("the connection ended within the answer"))

    # ------------------------------------------------------------------ called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self._delimited |= name.lower() in (b"content-length", b"transfer-encoding")
        if name.lower() == b"location":
            self._location = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._in_body = self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._in_body:
            self._settle()


async def get(loop: asyncio.AbstractEventLoop, dialer: Dialer, address: str, target: str,
              connect_s: float | None) -> tuple[int, bytes]:
    """Returns status and body of `GET http://ADDRESS/TARGET`; otherwise like ask()."""
    return (await ask(loop, dialer, address, request("GET", address, target), connect_s))[:2]


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
    exchange = await dialer.connect(lambda: _Exchange(loop, data), address, connect_s, tls)
    try:
        return await exchange.answer
    finally:
        exchange.abort()
