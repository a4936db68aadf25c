"""What the daemon shows of itself: /ping, /info, /stats as text and JSON, /config."""

import asyncio
import time
from collections.abc import Awaitable, Generator, Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from nsqc import NSQD_VERSION, version_line
from nsqc.broker.stats import (
    ChannelStats,
    ClientStats,
    Latency,
    Slice,
    TopicStats,
    producers_of,
    topics_of,
)
from nsqc.httpd.reply import JSON, TEXT, ApiError, Reply
from nsqc.httpd.request import Request, read_whole
from nsqc.options.declared import OptionError
from nsqc.options.durations import format_duration
from nsqc.wire.gojson import GoJSONError, decode_strings

_BOOLEANS = {b"true": True, b"1": True, b"false": False, b"0": False}
_LOG_LEVELS = {"debug": 1, "info": 2, "warn": 3, "error": 4, "fatal": 5}
_SECOND_NS = 1_000_000_000
_JOINED_BYTES = 256 * 1024      # an answer that is larger goes out in its parts
_encode = msgspec.json.Encoder().encode


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


def ping(app: Any, request: Request) -> str:
    """OK, or 500 and what ails the daemon."""
    health = app.broker.health()
    if health != "OK":
        raise ApiError(500, health)
    return health


def info(app: Any, request: Request) -> Info:
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
    )


def stats(app: Any, request: Request) -> Reply | Awaitable[Reply]:
    """Figures of topics, channels and clients: at once, or, where that would take long, a little at a time."""
    arguments = read_whole(app, request)
    asked = _Asked(
        topic=arguments.get(b"topic", b"").decode("utf-8", "replace"),
        channel=arguments.get(b"channel", b"").decode("utf-8", "replace"),
        clients=_BOOLEANS.get(arguments.get(b"include_clients", b""), True),
        memory=_BOOLEANS.get(arguments.get(b"include_mem", b""), True),
    )
    part = Slice()
    work = (_json if arguments.get(b"format") == b"json" else _text)(app, asked, part)
    if asked.topic or not app.surveys.locked():
        try:
            next(work)
        except StopIteration as done:
            return done.value
    return _go_on(app, work, part)


async def _go_on(app: Any, work: Generator[None, None, Reply], part: Slice) -> Reply:
    """One at a time: each takes its slice of every loop iteration."""
    async with app.surveys:
        while True:
            await asyncio.sleep(0)
            part.renew()
            try:
                next(work)
            except StopIteration as done:
                return done.value


class _Asked(Struct, frozen=True, gc=False):
    """Which statistics."""

    topic: str
    channel: str
    clients: bool
    memory: bool


def _json(app: Any, asked: _Asked, part: Slice) -> Generator[None, None, Reply]:
    head = b'{"version":%b,"health":%b,"start_time":%d,"topics":' % (
        _encode(NSQD_VERSION), _encode(app.broker.health()), int(app.start_time))
    parts = [head]
    known = _is_known(app, asked)
    if not known:
        parts.append(b"null")
    else:
        topics = topics_of(app.broker, part, asked.topic, asked.channel, asked.clients, _packed)
        yield from _listed(topics, parts)
    if asked.memory:
        parts.append(b',"memory":' + _encode(app.memory.read()))
    parts.append(b',"producers":')
    begins = len(parts)
    if asked.clients and known:
        yield from _listed(producers_of(app.sessions(), asked.topic, part), parts)
    if parts[begins:] in ([], [b"[", b"]"]):
        # An empty list is null here, as nsqd answers.
        parts[begins:] = [b"null"]
    parts.append(b"}")
    return _reply(parts, JSON)


def _is_known(app: Any, asked: _Asked) -> bool:
    """Of a topic that there is not, nothing is told."""
    return not asked.topic or app.broker.topic(asked.topic.encode()) is not None


def _packed(client: ClientStats) -> Raw:
    return Raw(_encode(client))


def _listed(found: Iterable[Struct | None], parts: list[bytes]) -> Generator[None, None, None]:
    """Adds a list of what is found; what one slice of time gives is one part."""
    parts.append(b"[")
    pieces: list[bytes] = []
    joint = b""
    for one in found:
        if one is not None:
            pieces.append(_encode(one))
            continue
        if pieces:
            parts.append(joint + b",".join(pieces))
            joint = b","
            pieces.clear()
        yield None
    if pieces:
        parts.append(joint + b",".join(pieces))
    parts.append(b"]")


def _text(app: Any, asked: _Asked, part: Slice) -> Generator[None, None, Reply]:
    parts: list[bytes] = []
    out = [_text_head(app, asked)]
    known = _is_known(app, asked)
    empty = True
    for topic in topics_of(app.broker, part, asked.topic, asked.channel, asked.clients):
        if topic is not None:
            if empty:
                out.append("\nTopics:")
                empty = False
            out.append(_topic_lines(topic))
            continue
        parts.append("".join(out).encode())
        out.clear()
        yield None
    if empty:
        out.append("\nTopics: None\n")
    empty = True
    for client in producers_of(app.sessions(), asked.topic, part) if asked.clients and known else ():
        if client is not None:
            if empty:
                out.append("\nProducers:\n")
                empty = False
            out.append(f"   {_client_line(client)}\n")
            continue
        parts.append("".join(out).encode())
        out.clear()
        yield None
    if empty:
        out.append("\nProducers: None\n")
    parts.append("".join(out).encode())
    return _reply(parts, TEXT)


def _reply(parts: list[bytes], content_type: str) -> Reply:
    if sum(map(len, parts)) < _JOINED_BYTES:
        return Reply(200, b"".join(parts), content_type, nsq=True)
    return Reply(200, content_type=content_type, nsq=True, parts=parts)


def _text_head(app: Any, asked: _Asked) -> str:
    started = datetime.fromtimestamp(int(app.start_time)).astimezone().isoformat()
    uptime = format_duration(max(0, int((time.time() - app.start_time) * _SECOND_NS)))
    text = (f"{version_line('nsqd')}\nstart_time {started.replace('+00:00', 'Z')}\nuptime {uptime}\n"
            f"\nHealth: {app.broker.health()}\n")
    if asked.memory:
        memory = app.memory.read()
        text += "\nMemory:\n"
        text += "".join(f"   {name:<25}\t{getattr(memory, name)}\n" for name in memory.__struct_fields__)
    return text


def _topic_lines(topic: TopicStats) -> str:
    """A topic with its channels and their clients."""
    out = [_topic_line(topic)]
    for channel in topic.channels:
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


def _latency_text(latency: Latency) -> str:
    """The percentiles in the unit that suits each, nanoseconds to seconds."""
    return ", ".join(_human_ns(one["value"]) for one in latency.percentiles or ())


def _human_ns(value: float) -> str:
    for unit_ns, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if value > unit_ns:
            return f"{value / unit_ns:.1f}{name}"
    return f"{value:.1f}ns"


def _client_line(client: ClientStats) -> str:
    port = client.remote_address.rpartition(":")[2] if ":" in client.remote_address else ""
    who = f"{client.hostname}:{port} {client.user_agent}"
    connected = format_duration(max(0, int(time.time()) - client.connect_ts) * _SECOND_NS)
    if client.pub_counts:
        total = sum(published.count for published in client.pub_counts)
        topics = ",".join(f"{published.topic}={published.count}" for published in client.pub_counts)
        return f"[{client.version} {who:<21}] msgs: {total:<8} topics: {topics} connected: {connected}"
    return (f"[{client.version} {who:<21}] state: {client.state} inflt: {client.in_flight_count:<4} "
            f"rdy: {client.ready_count:<4} fin: {client.finish_count:<8} re-q: {client.requeue_count:<8} "
            f"msgs: {client.message_count:<8} connected: {connected}")


def get_config(app: Any, request: Request) -> Any:
    """One option by its name in a configuration file."""
    try:
        return app.settings.now.by_config_name(request.param)
    except KeyError:
        raise ApiError(400, "INVALID_OPTION") from None


def put_config(app: Any, request: Request) -> Any:
    """Changes log_level or nsqlookupd_tcp_addresses while the daemon runs; answers the new value."""
    if request.broken:
        raise ApiError(500, "INTERNAL_ERROR")
    if not request.body or len(request.body) > app.settings.now.max_msg_size:
        raise ApiError(413, "INVALID_VALUE")
    if request.param == "log_level":
        fields = {"log_level": _log_level(request.body)}
    elif request.param == "nsqlookupd_tcp_addresses":
        fields = {"lookupd_tcp_address": _addresses(request.body)}
    else:
        raise ApiError(400, "INVALID_OPTION")
    try:
        app.settings.change(**fields)
    except OptionError:
        raise ApiError(400, "INVALID_VALUE") from None
    return get_config(app, request)


def _log_level(body: bytes) -> int:
    level = _LOG_LEVELS.get(body.decode("latin-1").lower())
    if level is None:
        raise ApiError(400, "INVALID_VALUE")
    return level


def _addresses(body: bytes) -> tuple[str, ...]:
    try:
        return tuple(decode_strings(body))
    except GoJSONError:
        raise ApiError(400, "INVALID_VALUE") from None
