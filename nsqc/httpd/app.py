"""State shared by a daemon's HTTP listeners, for handlers."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast

from msgspec import Struct

from nsqc.broker import refusals, stats
from nsqc.broker.broker import Broker
from nsqc.broker.drain import Drain
from nsqc.broker.health import WritableProbe
from nsqc.broker.stats import MemoryWatch
from nsqc.httpd.gate import Gate
from nsqc.httpd.publish import PublishPipeline
from nsqc.httpd.reply import ApiError, Handler, Readers, Request, Result, Stream, read_arguments
from nsqc.httpd.site import READERS, Resolve, Site
from nsqc.log import Log
from nsqc.loop.slow import SlowLoop
from nsqc.net.listener import ConnectionLimits, Listeners
from nsqc.options.declared import Options, Settings
from nsqc.options.rules import ChannelRules, TopicRules
from nsqc.store.log.names import RemoteError
from nsqc.wire.parser import is_valid_name

if TYPE_CHECKING:
    from nsqc.broker.channel import Channel
    from nsqc.broker.health import SpaceWatch
    from nsqc.broker.topic import Topic
    from nsqc.httpd.reply import Route
    from nsqc.metrics.durations import Durations
    from nsqc.net.tls import CertificateDate
    from nsqc.store.disk.manager import Syncer
    from nsqc.store.log.manager import History, Logs
    from nsqc.store.log.topiclog import TopicLog


# ====================================================================== app

Sessions = Callable[[], Iterable[Any]]  # Any: V2 sessions, of a higher room; nsqc.broker.stats reads them


MOST_RULES = 64 * 1024      # bytes of the body of a rule
MOST_TABLES = 1024 * 1024   # of all tables of rules
# Pages of messages built at once; each takes up to a few MiB.
_PEEKS = 4
_FETCHES = 100      # of segments for one call


class NodeInfo(TypedDict):
    """Addresses of this daemon; ports are -1 for unix sockets, 0 while there is no listener."""

    hostname: str
    tcp_port: int
    http_port: int
    https_port: int


class BucketState(Struct, frozen=True, gc=False):
    """How far a node's bucket is, as /info shows it. checkpoint_time: of the last one since the start, unix seconds; 0:
    none yet. owned_since: when this process claimed the node, likewise. taken_from: the host that had it; empty: it
    continued with its own files, or there was none. cache_bytes: of fetched segments; fetches, fetch_failures: of such
    segments, since the start. fenced: why another process owns the node; empty: none does."""

    node: str
    epoch: int
    lag_seconds: float
    lag_bytes: int
    commits: int
    put_bytes: int
    errors: int
    last_error: str
    checkpoint_time: int
    owned_since: int
    taken_from: str
    cache_bytes: int
    fetches: int
    fetch_failures: int
    fenced: str


class Watched(NamedTuple):
    """The parts of a daemon, besides its topics, that metrics report."""

    lags: Durations                         # of the loop
    limits: ConnectionLimits
    syncer: Syncer
    space: SpaceWatch
    tcp_buffers: Callable[[], Iterable[int]]    # of each V2 client, bytes of memory
    certificates: Callable[[], list[CertificateDate]]
    bucket: Callable[[], BucketState | None] = lambda: None


class LogReaders(Readers):
    """Also fetches segments that only the bucket has."""

    def __init__(self, threads: Executor, most: int, history: History | None) -> None:
        """history: None without a bucket."""
        super().__init__(threads, most)
        self._history = history

    async def run(self, call: Callable[[], Result]) -> Result:
        """Raises ApiError if a segment cannot be fetched."""
        return await self._fetching(lambda: super(LogReaders, self).run(call))

    async def send(self, stream: Stream, transport: asyncio.Transport, tls: bool) -> bytes:
        """The same."""
        return await self._fetching(lambda: super(LogReaders, self).send(stream, transport, tls))

    async def _fetching(self, call: Callable[[], Awaitable[Result]]) -> Result:
        for _ in range(_FETCHES):
            try:
                return await call()
            except RemoteError as error:
                if self._history is None:
                    raise ApiError(503, f"FAILED - {error.__cause__ or error.strerror}") from None
                try:
                    await self._history.fetched(error.folder, error.segment)
                except OSError as why:
                    raise ApiError(503, f"FAILED - the bucket: {why}") from None
        raise ApiError(503, "FAILED - --bucket-cache-bytes is too small for this many readers")


class App(Site):
    """Shared by all HTTP listeners of a daemon."""

    pipeline = PublishPipeline

    def __init__(self, *, broker: Broker, settings: Settings, rules: TopicRules, channel_rules: ChannelRules, log: Log,
                 sessions: Sessions, info: NodeInfo, start_time: float, threads: Executor, resolve: Resolve,
                 limits: ConnectionLimits,
                 listeners: Listeners, writable: WritableProbe, drain: Drain, slow: SlowLoop, watched: Watched,
                 gate: Gate, history: History | None) -> None:
        super().__init__(log=log, resolve=resolve, threads=threads,
                         header_timeout=settings.now.http_header_timeout, slow=slow, gate=gate)
        self.readers = LogReaders(threads, READERS, history)
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

    def contents(self) -> dict[str, int]:
        """See Site: memory, topics, and live objects that are not Python's."""
        memory = self.memory.read()
        return {**{name: getattr(memory, name) for name in memory.__struct_fields__}, "topics": len(self.broker.topics),
                **super().contents(), **{f"alive {name}": value for name, value in stats.counts().items()}}

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


# ====================================================================== naming
# Topics and channels named by requests, and the logs of topics.

Arguments = dict[bytes, bytes]


def invalid(key: bytes) -> ApiError:
    """Refuses an argument's value."""
    return ApiError(400, f"INVALID_ARG_{key.decode().upper()}")


def name_in(arguments: Arguments, key: bytes) -> bytes:
    """The name of a topic or channel. Raises ApiError if it is missing or invalid."""
    name = arguments.get(key)
    if name is None:
        raise ApiError(400, f"MISSING_ARG_{key.decode().upper()}")
    if not is_valid_name(name):
        raise invalid(key)
    return name


def existing(app: App, name: bytes) -> Topic:
    """The topic of this name. Raises ApiError."""
    topic = app.broker.topic(name)
    if topic is None:
        raise ApiError(404, "TOPIC_NOT_FOUND")
    return topic


def existing_channel(topic: Topic, name: bytes) -> Channel:
    """The topic's channel of this name. Raises ApiError."""
    channel = topic.channel(name)
    if channel is None:
        raise ApiError(404, "CHANNEL_NOT_FOUND")
    return channel


def named(app: App, arguments: Arguments) -> Topic:
    """The existing topic named by the arguments. Raises ApiError."""
    return existing(app, name_in(arguments, b"topic"))


def topic_and_channel(app: App, arguments: Arguments) -> tuple[Topic, bytes]:
    """An existing topic, and the name of a channel that need not exist. Names are checked first. Raises ApiError."""
    topic, channel = name_in(arguments, b"topic"), name_in(arguments, b"channel")
    return existing(app, topic), channel


def log_of(topic: Topic) -> TopicLog:
    """The topic's log. Raises ApiError if it has none."""
    if topic.exiting:
        raise ApiError(404, "TOPIC_NOT_FOUND")
    if topic.log is None:
        name = topic.name.decode()
        if topic.ephemeral:
            raise ApiError(400, f"NO_LOG: {name} is ephemeral; such topics stay in memory")
        raise ApiError(400, f'NO_LOG: {name} is kept in memory; its rule has to say storage = "log" (PUT /topic/rules, '
                            f'[topics."{name}"] in the config file, or --topic-storage=log)')
    return topic.log


# ====================================================================== changes
# Deletions, pauses, rules and moves of channels: with sync = "bucket" they are answered once the bucket has them.

def confirmed(handler: Handler) -> Handler:
    """Has a handler of changes answer once the bucket has them, if the topic's rule says sync = "bucket"."""

    def call(app: App, request: Request) -> object:
        logs = app.broker.logs
        return handler(app, request) if logs is None or logs.shipping is None else _call(app, request, handler, logs)

    return call


async def _call(app: App, request: Request, handler: Handler, logs: Logs) -> object:
    name = read_arguments(app.log, request).get(b"topic")
    waits = _is_confirmed(app, name)        # by the rule before the change, or by that after it
    answer = handler(app, request)
    if hasattr(answer, "__await__"):
        answer = await cast("Awaitable[object]", answer)
    if (waits or _is_confirmed(app, name)) and await logs.shipped():
        raise ApiError(503, f"FAILED - {refusals.not_shipped}")
    return answer


def _is_confirmed(app: App, name: bytes | None) -> bool:
    """name: None for the tables of rules, which may apply to any topic."""
    return name is None or (is_valid_name(name) and app.rules.of(name).sync == "bucket")
