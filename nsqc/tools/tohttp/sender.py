"""HTTP requests on a dedicated event loop, in a thread: concurrent, over persistent connections."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import uvloop

from nsqc.tools.tohttp.exchange import Exchange
from nsqc.tools.tohttp.url import Url

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
