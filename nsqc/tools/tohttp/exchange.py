"""One persistent HTTP connection, as a protocol of the event loop."""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

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
