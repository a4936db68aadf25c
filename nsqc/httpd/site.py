"""The server program of a connection, for any API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from time import monotonic
from typing import TYPE_CHECKING

from nsqc.httpd.gate import Gate
from nsqc.httpd.known import KnownPublishes
from nsqc.httpd.pipeline import Pipeline
from nsqc.httpd.reply import Dates
from nsqc.httpd.streaming import Readers
from nsqc.httpd.untaken import Untaken
from nsqc.log import Log
from nsqc.loop.share import REQUESTS_S, Share
from nsqc.loop.slow import SlowLoop
from nsqc.loop.unread import Unread
from nsqc.options.durations import format_duration

if TYPE_CHECKING:
    from nsqc.httpd.request import Request, Route
    from nsqc.httpd.server import Server

# Threads that may read files for clients at once; a daemon's pool has more.
_READERS = 2

Resolve = Callable[["Request"], "Route"]


class Site:
    """Shared by all HTTP listeners of a program. Programs add the objects for their handlers."""

    pipeline: type[Pipeline] = Pipeline
    max_msg_size = 0            # longest body of a plain publish, bytes; 0: /pub is an ordinary path
    https_port = 0              # for the answer to clients that must use it
    unread: Unread | None = None    # waiting clients, for which long work pauses; None: not observed

    def __init__(self, *, log: Log, resolve: Resolve, header_timeout: int, threads: Executor, slow: SlowLoop,
                 gate: Gate) -> None:
        self.log = log
        self.gate = gate
        self.slow = slow
        self.resolve = resolve
        self.publishes = KnownPublishes()
        self.header_timeout = header_timeout    # nanoseconds for a head, and for the first request
        self.profiling = False                  # /debug/pprof/profile is running
        self.census: asyncio.Task[object] | None = None     # live objects are being counted
        self.readers = Readers(threads, _READERS)
        self.servers: list[Server] = []
        self.dates = Dates()
        self.share = Share(REQUESTS_S, "requests")
        self.untaken = Untaken()

    def body_limit(self, route: Route) -> int | None:
        """Most bytes of body for a route; None: no body."""
        return route.body_limit if isinstance(route.body_limit, int) else None

    def date(self) -> str:
        """The Date header, a whole line."""
        dates = self.dates
        if monotonic() >= dates.until:
            dates.refresh()
        return dates.line

    def log_request(self, request: Request, status: int) -> None:
        """NSQ's line for an answered request."""
        elapsed = format_duration(time.perf_counter_ns() - request.started)
        self.log.info("%d %s %s (%s) %s", status, request.method.decode("latin-1"), request.url.decode("latin-1"),
                      request.remote, elapsed)


class ServerState:
    """The state of one listener, for its connections."""

    __slots__ = ("closing", "loop", "tls", "tls_required")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, tls: bool, tls_required: bool) -> None:
        self.loop = loop
        self.tls = tls                      # connections are encrypted
        self.tls_required = tls_required    # every request is refused: clients should use TLS
        self.closing = False
