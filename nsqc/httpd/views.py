"""What the daemon shows of itself: /ping, /info, /stats as text and JSON, /config."""

import time
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from nsqc import NSQD_VERSION
from nsqc.broker.stats import (
    ChannelStats,
    ClientStats,
    Latency,
    MemoryStats,
    Stats,
    TopicStats,
    collect,
)
from nsqc.durations import format_duration
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request, read_whole
from nsqc.options import OptionError
from nsqc.version import version_line

_BOOLEANS = {b"true": True, b"1": True, b"false": False, b"0": False}
_LOG_LEVELS = {"debug": 1, "info": 2, "warn": 3, "error": 4, "fatal": 5}
_SECOND_NS = 1_000_000_000


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


class StatsAnswer(Struct, frozen=True):
    """The answer of /stats?format=json; memory is left out where it was not asked for."""

    version: str
    health: str
    start_time: int
    topics: list[TopicStats] | None
    memory: MemoryStats | UnsetType
    producers: list[ClientStats] | None


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


def stats(app: Any, request: Request) -> StatsAnswer | str:
    """Figures of topics, channels and clients."""
    arguments = read_whole(app, request)
    topic = arguments.get(b"topic", b"").decode("utf-8", "replace")
    channel = arguments.get(b"channel", b"").decode("utf-8", "replace")
    found = collect(app.broker, app.sessions(), topic, channel,
                    _BOOLEANS.get(arguments.get(b"include_clients", b""), True))
    memory = app.memory.read() if _BOOLEANS.get(arguments.get(b"include_mem", b""), True) else UNSET
    health = app.broker.health()
    if arguments.get(b"format") == b"json":
        return StatsAnswer(NSQD_VERSION, health, int(app.start_time), found.topics, memory, found.producers)
    return "".join(_text(found, memory, health, app.start_time))


def _text(found: Stats, memory: MemoryStats | UnsetType, health: str, start_time: float) -> list[str]:
    started = datetime.fromtimestamp(int(start_time)).astimezone().isoformat()
    uptime = format_duration(max(0, int((time.time() - start_time) * _SECOND_NS)))
    out = [f"{version_line('nsqd')}\nstart_time {started.replace('+00:00', 'Z')}\nuptime {uptime}\n"
           f"\nHealth: {health}\n"]
    if memory is not UNSET:
        out.append("\nMemory:\n")
        out += [f"   {name:<25}\t{getattr(memory, name)}\n" for name in memory.__struct_fields__]
    out.append("\nTopics:" if found.topics else "\nTopics: None\n")
    for topic in found.topics or ():
        out.append(_topic_line(topic))
        for channel in topic.channels:
            out.append(_channel_line(channel))
            out += [f"        {_client_line(client)}\n" for client in channel.clients or ()]
    out.append("\nProducers:\n" if found.producers else "\nProducers: None\n")
    out += [f"   {_client_line(client)}\n" for client in found.producers or ()]
    return out


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
        return msgspec.json.decode(body, type=tuple[str, ...] | None) or ()
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise ApiError(400, "INVALID_VALUE") from None
