"""The daemon's own state: /ping, /info, /config."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from nsqc import NSQD_VERSION, version_line
from nsqc.broker.broker import Broker
from nsqc.broker.stats import producers_of, topics_of, whole
from nsqc.httpd.app import App, BucketState
from nsqc.httpd.reply import BOOLEANS, JSON, TEXT, ApiError, Reply, Request, read_whole
from nsqc.httpd.routing import readiness
from nsqc.log import LEVELS
from nsqc.log.formats import mask_address, visible
from nsqc.net.listener import not_accepting
from nsqc.net.tls import concerns
from nsqc.options.declared import OptionError
from nsqc.options.option import Value, format_duration
from nsqc.store.files import completed
from nsqc.wire.gojson import GoJSONError, decode_strings
from nsqc.wire.stats import ChannelStats, ClientStats, Latency, TopicStats, percentiles_of

# ====================================================================== statistics
# GET /stats: JSON, or text in nsqd's format.

_SECOND_NS = 1_000_000_000
_encode = msgspec.json.Encoder().encode
T = TypeVar("T")


def stats(app: App, request: Request) -> Reply | Awaitable[Reply]:
    """Statistics of topics, channels and clients: at once, or in slices if they would block the loop for too long."""
    arguments = read_whole(app.log, request)
    query = _Query(
        topic=arguments.get(b"topic", b"").decode("utf-8", "replace"),
        channel=arguments.get(b"channel", b"").decode("utf-8", "replace"),
        clients=BOOLEANS.get(arguments.get(b"include_clients", b""), True),
        memory=BOOLEANS.get(arguments.get(b"include_mem", b""), True),
    )
    work = (_json if arguments.get(b"format") == b"json" else _text)(app, query)
    if (query.topic or not app.surveys.locked()) and not app.untaken.full:
        app.broker.slicer.start()
        try:
            next(work)
        except StopIteration as complete:
            reply: Reply = complete.value
            return reply
    return _in_slices(app, work)


async def _in_slices(app: App, work: Generator[None, None, Reply]) -> Reply:
    """Like stats(), after any other survey has ended."""
    async with app.surveys:
        await app.untaken.room()
        return await completed(app.broker.slicer, "statistics", work)


class _Query(Struct, frozen=True, gc=False):
    """The arguments of a request."""

    topic: str
    channel: str
    clients: bool
    memory: bool


def _is_known(app: App, query: _Query) -> bool:
    """Whether the topic exists; otherwise nothing is reported."""
    return not query.topic or app.broker.topic(query.topic.encode()) is not None


def _json(app: App, query: _Query) -> Generator[None, None, Reply]:
    head = b'{"version":%b,"health":%b,"start_time":%d,"topics":' % (
        _encode(NSQD_VERSION), _encode(app.broker.health()), int(app.start_time))
    parts = [head]
    known = _is_known(app, query)
    if not known:
        parts.append(b"null")
    else:
        topics = topics_of(app.broker, query.topic, query.channel, query.clients, _packed)
        yield from _listed(topics, parts)
    if query.memory:
        parts.append(b',"memory":' + _encode(app.memory.read()))
    parts.append(b',"producers":')
    start = len(parts)
    if query.clients and known:
        yield from _listed(producers_of(app.sessions(), query.topic, app.broker.slicer), parts)
    if parts[start:] in ([], [b"[", b"]"]):
        # An empty list is null here, as in nsqd.
        parts[start:] = [b"null"]
    parts.append(b"}")
    return Reply(200, content_type=JSON, nsq=True, parts=parts)


def _packed(client: ClientStats) -> Raw:
    return Raw(_encode(client))


def _listed(items: Iterable[Struct | None], parts: list[bytes]) -> Generator[None, None, None]:
    """Adds a JSON list of the items: one part per slice."""
    parts.append(b"[")
    pieces: list[bytes] = []
    joint = b""
    for item in items:
        if item is not None:
            pieces.append(_encode(item))
            continue
        if pieces:
            parts.append(joint + b",".join(pieces))
            joint = b","
            pieces.clear()
        yield None
    if pieces:
        parts.append(joint + b",".join(pieces))
    parts.append(b"]")


def _text(app: App, query: _Query) -> Generator[None, None, Reply]:
    parts: list[bytes] = []
    out = [_text_head(app, query)]
    producers = (producers_of(app.sessions(), query.topic, app.broker.slicer)
                 if query.clients and _is_known(app, query) else ())
    texts: tuple[tuple[str, str, Iterable[str | None]], ...] = (
        ("Topics:", "", _texts(topics_of(app.broker, query.topic, query.channel, query.clients), _topic_lines)),
        ("Producers:", "\n", _texts(producers, lambda client: f"   {_client_line(client)}\n")))
    for title, end, items in texts:
        empty = True
        for text in items:
            if text is None:
                parts.append("".join(out).encode())
                out.clear()
                yield None
                continue
            if empty:
                out.append(f"\n{title}{end}")
                empty = False
            out.append(text)
        if empty:
            out.append(f"\n{title} None\n")
    parts.append("".join(out).encode())
    return Reply(200, content_type=TEXT, nsq=True, parts=parts)


def _texts(items: Iterable[T | None], text_of: Callable[[T], str]) -> Iterator[str | None]:
    """The text of each item. None: the slice is over."""
    return (None if item is None else text_of(item) for item in items)


def _text_head(app: App, query: _Query) -> str:
    started = datetime.fromtimestamp(int(app.start_time)).astimezone().isoformat()
    uptime = format_duration(max(0, int((time.time() - app.start_time) * _SECOND_NS)))
    text = (f"{version_line('nsqd')}\nstart_time {started.replace('+00:00', 'Z')}\nuptime {uptime}\n"
            f"\nHealth: {app.broker.health()}\n")
    if query.memory:
        memory = app.memory.read()
        text += "\nMemory:\n"
        text += "".join(f"   {name:<25}\t{getattr(memory, name)}\n" for name in memory.__struct_fields__)
    return text


# ---------------------------------------------------------------------- lines of text

def _topic_lines(topic: TopicStats) -> str:
    """A topic with its channels and their clients."""
    out = [_topic_line(topic)]
    for channel in topic.channels or ():
        out.append(_channel_line(channel))
        out += [f"        {_client_line(client)}\n" for client in channel.clients or ()]
    return "".join(out)


def _topic_line(topic: TopicStats) -> str:
    return (f"\n{'*P ' if topic.paused else '   '}[{topic.topic_name:<15}] depth: {topic.depth:<5} "
            f"be-depth: {topic.backend_depth:<5} msgs: {topic.message_count:<8} "
            f"e2e%: {_latency_text(topic.e2e_processing_latency)}\n")


def _channel_line(channel: ChannelStats) -> str:
    return (f"{'   *P ' if channel.paused else '      '}[{channel.channel_name:<25}] depth: {channel.depth:<5} "
            f"be-depth: {channel.backend_depth:<5} inflt: {channel.in_flight_count:<4} "
            f"def: {channel.deferred_count:<4} re-q: {channel.requeue_count:<5} timeout: {channel.timeout_count:<5} "
            f"msgs: {channel.message_count:<8} e2e%: {_latency_text(channel.e2e_processing_latency)}\n")


def _latency_text(latency: Latency | None) -> str:
    """The percentiles, each in a suitable unit, nanoseconds to seconds."""
    return ", ".join(_human_ns(percentile["value"]) for percentile in percentiles_of(latency))


def _human_ns(value: float) -> str:
    for unit_ns, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if value > unit_ns:
            return f"{value / unit_ns:.1f}{name}"
    return f"{value:.1f}ns"


def _client_line(client: ClientStats) -> str:
    """A consumer, or a producer with its topics; without a line end."""
    port = client.remote_address.rpartition(":")[2] if ":" in client.remote_address else ""
    # Chosen by clients, and shown on terminals.
    name = visible(f"{client.hostname}:{port} {client.user_agent}")
    connected = format_duration(client.connected)
    if client.pub_counts:
        total = sum(pub.count for pub in client.pub_counts)
        topics = ",".join(f"{pub.topic}={pub.count}" for pub in client.pub_counts)
        return f"[{client.version} {name:<21}] msgs: {total:<8} topics: {topics} connected: {connected}"
    return (f"[{client.version} {name:<21}] state: {client.state} inflt: {client.in_flight_count:<4} "
            f"rdy: {client.ready_count:<4} fin: {client.finish_count:<8} re-q: {client.requeue_count:<8} "
            f"msgs: {client.message_count:<8} connected: {connected}")


# ====================================================================== ready
# /readyz: whether clients should be sent to this node.

_MOST_TOLD = 10     # logs in the details
_LATE_S = 60.0


def readyz(app: App, request: Request) -> Awaitable[Reply]:
    """200 and {"ready": true}, or 503 and the reasons."""
    return _readyz(app)


async def _readyz(app: App) -> Reply:
    unwritable = await app.writable.reason()
    reasons = [] if app.started else ["starting"]
    if app.drain.closed:
        reasons.append("stopping")
    elif app.drain.reason is not None:
        reasons.append(app.drain.reason)
    refusing = not_accepting(app.limits, app.listeners)
    if refusing is not None:
        reasons.append(refusing)
    health = app.broker.health()
    if health != "OK":
        reasons.append(health.removeprefix("NOK - "))
    if unwritable is not None:
        reasons.append(unwritable)
    return readiness(reasons, [*losses(app.broker), *concerns(app.watched.certificates()), *lags(app.watched.bucket())])


def lags(bucket: BucketState | None) -> list[str]:
    """That the bucket is more than a minute late, and why."""
    if bucket is None or bucket.lag_seconds < _LATE_S:
        return []
    return [f"the bucket lacks {bucket.lag_bytes} bytes from the last {bucket.lag_seconds:.0f} s: "
            f"{bucket.last_error or 'it is slow'}"]


def losses(broker: Broker) -> list[str]:
    """Topics whose logs have lost messages."""
    logs = [log for log in broker.logs.losers.values() if log.damaged or log.missing] if broker.logs else []
    told = [f"the log of {log.name} has lost messages: {log.damaged} damaged, {log.missing} missing"
            for log in logs[:_MOST_TOLD]]
    return told + ([f"{len(logs) - _MOST_TOLD} more logs have lost messages"] if len(logs) > _MOST_TOLD else [])


# ====================================================================== views

_NULL = Raw(b"null")


class Info(Struct, frozen=True, gc=False):
    """The answer of /info; start_time in unix seconds, the other times in nanoseconds, sizes in bytes."""

    version: str
    broadcast_address: str
    hostname: str
    http_port: int
    tcp_port: int
    start_time: int
    max_heartbeat_interval: int
    max_output_buffer_size: int
    max_output_buffer_timeout: int
    max_deflate_level: int
    topology_zone: str | UnsetType = UNSET
    topology_region: str | UnsetType = UNSET
    https_port: int | UnsetType = UNSET     # nsqc's own: clients with a secret use it
    bucket: BucketState | UnsetType = UNSET     # with --bucket


def ping(app: App, request: Request) -> str:
    """OK, or 500 and the reason."""
    health = app.broker.health()
    if health != "OK":
        raise ApiError(500, health)
    return health


def info(app: App, request: Request) -> Info:
    """Version, addresses and limits; the ports are -1 on unix sockets."""
    options = app.settings.now
    return Info(
        version=NSQD_VERSION,
        broadcast_address=options.broadcast_address,
        hostname=app.info["hostname"],
        http_port=next((server.port for server in app.servers if server.name == "HTTP"), -1),
        tcp_port=app.info["tcp_port"],
        start_time=int(app.start_time),
        max_heartbeat_interval=options.max_heartbeat_interval,
        max_output_buffer_size=options.max_output_buffer_size,
        max_output_buffer_timeout=options.max_output_buffer_timeout,
        max_deflate_level=options.max_deflate_level,
        https_port=app.https_port or UNSET,
        bucket=app.watched.bucket() or UNSET,
        **options.topology,
    )


def get_config(app: App, request: Request) -> object:
    """One option, by its key in a config file, in Go's JSON form and without the passwords of addresses."""
    try:
        value = app.settings.now.by_config_name(request.param)
    except KeyError:
        raise ApiError(400, "INVALID_OPTION") from None
    if request.param in app.null_options and not value:
        return _NULL
    if isinstance(value, list):
        return [mask_address(item) if isinstance(item, str) else whole(item) for item in value]
    return mask_address(value) if isinstance(value, str) else value


def put_config(app: App, request: Request) -> object:
    """Changes log_level or nsqlookupd_tcp_addresses while the daemon runs; returns the new value."""
    if request.broken:
        raise ApiError(500, "INTERNAL_ERROR")
    if not request.body or len(request.body) > app.settings.now.max_msg_size:
        raise ApiError(413, "INVALID_VALUE")
    if request.param == "log_level":
        fields: dict[str, Value] = {"log_level": _log_level(request.body)}
        is_null = False
    elif request.param == "nsqlookupd_tcp_addresses":
        addresses = _addresses(request.body)
        fields = {"lookupd_tcp_address": addresses or ()}
        is_null = addresses is None
    else:
        raise ApiError(400, "INVALID_OPTION")
    try:
        app.settings.change(**fields)
    except OptionError:
        raise ApiError(400, "INVALID_VALUE") from None
    (app.null_options.add if is_null else app.null_options.discard)(request.param)
    return get_config(app, request)


def _log_level(body: bytes) -> int:
    level = LEVELS.get(body.decode("latin-1").lower())
    if level is None:
        raise ApiError(400, "INVALID_VALUE")
    return level


def _addresses(body: bytes) -> tuple[str, ...] | None:
    """None for null, which nsqd returns as null from then on."""
    try:
        addresses = tuple(decode_strings(body))
    except GoJSONError:
        raise ApiError(400, "INVALID_VALUE") from None
    return None if body.strip() == b"null" else addresses
