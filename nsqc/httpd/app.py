"""State shared by a daemon's HTTP listeners, for handlers."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from nsqc.broker.broker import Broker
from nsqc.broker.drain import Drain
from nsqc.broker.stats import MemoryWatch
from nsqc.broker.writable import WritableProbe
from nsqc.httpd.gate import Gate
from nsqc.httpd.publishing import PublishPipeline
from nsqc.httpd.site import Resolve, Site
from nsqc.httpd.streaming import Stream
from nsqc.log import Log
from nsqc.loop.slow import SlowLoop
from nsqc.net.limits import ConnectionLimits
from nsqc.net.listener import Listeners
from nsqc.options.channel_rules import ChannelRules
from nsqc.options.declared import Options, Settings
from nsqc.options.topic_rules import TopicRules

if TYPE_CHECKING:
    from nsqc.broker.space import SpaceWatch
    from nsqc.httpd.request import Route
    from nsqc.metrics.durations import Durations
    from nsqc.net.certdates import CertificateDate
    from nsqc.net.limits import ConnectionLimits
    from nsqc.store.disk.syncer import Syncer

Sessions = Callable[[], Iterable[Any]]  # Any: V2 sessions, of a higher room; nsqc.broker.stats reads them


MOST_RULES = 64 * 1024      # bytes of the body of a rule
# Pages of messages built at once; each takes up to a few MiB.
_PEEKS = 4


class NodeInfo(TypedDict):
    """Addresses of this daemon; ports are -1 for unix sockets, 0 while there is no listener."""

    hostname: str
    tcp_port: int
    http_port: int
    https_port: int


class Watched(NamedTuple):
    """The parts of a daemon, besides its topics, that metrics report."""

    lags: Durations                         # of the loop
    limits: ConnectionLimits
    syncer: Syncer
    space: SpaceWatch
    tcp_buffers: Callable[[], Iterable[int]]    # of each V2 client, bytes of memory
    certificates: Callable[[], list[CertificateDate]]


class App(Site):
    """Shared by all HTTP listeners of a daemon."""

    pipeline = PublishPipeline

    def __init__(self, *, broker: Broker, settings: Settings, rules: TopicRules, channel_rules: ChannelRules, log: Log,
                 sessions: Sessions, info: NodeInfo, start_time: float, threads: Executor, resolve: Resolve,
                 limits: ConnectionLimits,
                 listeners: Listeners, writable: WritableProbe, drain: Drain, slow: SlowLoop, watched: Watched,
                 gate: Gate) -> None:
        super().__init__(log=log, resolve=resolve, threads=threads,
                         header_timeout=settings.now.http_header_timeout, slow=slow, gate=gate)
        self.broker = broker
        self.unread = broker.slicer.unread
        self.settings = settings
        self.rules = rules
        self.channel_rules = channel_rules
        self.sessions = sessions            # all V2 connections
        self.info = info                    # read for each call: ports are filled in as listeners start
        self.start_time = start_time        # unix seconds
        self.threads = threads
        self.limits = limits
        self.listeners = listeners
        self.writable = writable
        self.drain = drain
        self.watched = watched
        self.null_options: set[str] = set() # keys of empty lists that were set to null over HTTP
        self.started = False                # all listeners accept
        self.memory = MemoryWatch()
        self.memory.start()
        self.surveys = asyncio.Lock()       # held by statistics that take more than one loop iteration
        self.peeks = asyncio.Semaphore(_PEEKS)
        self.searches = asyncio.Lock()      # held while a message is searched: searches run one by one
        self.redrives = asyncio.Lock()      # held while messages leave a dead-letter topic
        self.pages: weakref.WeakSet[Stream] = weakref.WeakSet()     # of messages, still being sent
        self.max_msg_size = settings.now.message_limit
        settings.on_change(self._settings_changed)

    def _settings_changed(self, options: Options) -> None:
        self.max_msg_size = options.message_limit
        self.publishes.forget_heads()
        for server in self.servers:
            for connection in server.connections:
                connection.forget_heads()
        self.gate.set_options(options)

    def has_topic(self, name: str) -> bool:
        """Whether a topic of that name exists."""
        return self.broker.topic(name.encode()) is not None

    @property
    def https_port(self) -> int:  # type: ignore[override]
        """The port of the HTTPS listener; 0 without one."""
        return self.info["https_port"]

    def body_limit(self, route: Route) -> int | None:
        """Most bytes of body for a route, with the current options; None: no body."""
        limit = route.body_limit
        return getattr(self.settings.now, limit) if isinstance(limit, str) else limit
