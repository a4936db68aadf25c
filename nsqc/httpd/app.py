"""What the HTTP listeners of a daemon share, and handlers work on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sized
from concurrent.futures import Executor
from time import monotonic
from typing import Any, Protocol, TypedDict

from nsqc.broker.broker import Broker
from nsqc.broker.stats import MemoryWatch
from nsqc.httpd.known import KnownPublishes
from nsqc.httpd.reply import Dates
from nsqc.httpd.streaming import Readers
from nsqc.log import Log
from nsqc.options.declared import Options, Settings
from nsqc.options.durations import format_duration
from nsqc.options.topic_rules import TopicRules

Sessions = Callable[[], Iterable[Any]]  # Any: V2 sessions, which are above this room; nsqc.broker.stats reads them

# Threads that may read logs for clients at the same time; the daemon's pool has more.
_READERS = 2


class NodeInfo(TypedDict):
    """How others reach this daemon; ports are -1 for unix sockets, 0 while there is no listener."""

    hostname: str
    tcp_port: int
    http_port: int
    https_port: int


class Endpoint(Protocol):
    """A listening server, as handlers see it."""

    name: str
    address: str
    port: int

    @property
    def connections(self) -> Sized:
        """Its clients."""


class Received(Protocol):
    """A request, as the log needs it."""

    method: bytes
    url: bytes
    remote: str
    started: int


class App:
    """Shared by all HTTP listeners of a daemon."""

    def __init__(self, *, broker: Broker, settings: Settings, rules: TopicRules, log: Log, sessions: Sessions,
                 info: NodeInfo, start_time: float, threads: Executor) -> None:
        self.broker = broker
        self.settings = settings
        self.rules = rules
        self.log = log
        self.sessions = sessions            # all V2 connections
        self.info = info                    # read by each call: ports are filled in as listeners start
        self.start_time = start_time        # unix seconds
        self.memory = MemoryWatch()
        self.memory.start()
        self.profiling = False              # /debug/pprof/profile is running
        self.surveys = asyncio.Lock()       # held by statistics that take more than one loop iteration
        self.readers = Readers(threads, _READERS)
        self.servers: list[Endpoint] = []
        self.dates = Dates()
        self.publishes = KnownPublishes()
        self.max_msg_size = settings.now.message_limit
        settings.on_change(self._settings_changed)

    def _settings_changed(self, options: Options) -> None:
        self.max_msg_size = options.message_limit
        self.publishes.forget_heads()

    def date(self) -> str:
        """The Date header, a whole line."""
        dates = self.dates
        if monotonic() >= dates.until:
            dates.refresh()
        return dates.line

    def log_request(self, request: Received, status: int) -> None:
        """nsqd's line for an answered request."""
        elapsed = format_duration(time.perf_counter_ns() - request.started)
        self.log.info("%d %s %s (%s) %s", status, request.method.decode("latin-1"), request.url.decode("latin-1"),
                      request.remote, elapsed)


class ServerState:
    """What the connections of one listener have to know of it."""

    __slots__ = ("closing", "loop", "tls", "tls_required")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, tls: bool, tls_required: bool) -> None:
        self.loop = loop
        self.tls = tls                      # connections are encrypted
        self.tls_required = tls_required    # they should be, so every request is refused
        self.closing = False
