"""The text form of /stats: lines of topics, channels and clients, in nsqd's format."""

from __future__ import annotations

from nsqc.log.visible import visible
from nsqc.options.durations import format_duration
from nsqc.wire.stats import ChannelStats, ClientStats, Latency, TopicStats, percentiles_of


def topic_lines(topic: TopicStats) -> str:
    """A topic with its channels and their clients."""
    out = [_topic_line(topic)]
    for channel in topic.channels or ():
        out.append(_channel_line(channel))
        out += [f"        {client_line(client)}\n" for client in channel.clients or ()]
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


def client_line(client: ClientStats) -> str:
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
