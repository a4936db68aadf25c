"""nsqadmin's JSON: sums over nodes, with its keys in its order."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from nsqc.admin.fleet import Known, version_key
from nsqc.wire.outside import Json
from nsqc.wire.stats import ChannelStats, ClientStats, Latency, TopicStats, percentiles_of

OF_CLIENT = ("remote_address", "version", "client_id", "hostname", "user_agent", "connect_ts", "connected",
             "in_flight_count", "ready_count", "finish_count", "requeue_count", "message_count", "sample_rate",
             "deflate", "snappy", "authed", "auth_identity", "auth_identity_url", "tls", "tls_cipher_suite",
             "tls_version", "tls_negotiated_protocol", "tls_negotiated_protocol_is_mutual")
SUMMED = ("depth", "memory_depth", "backend_depth", "in_flight_count", "deferred_count", "requeue_count",
          "timeout_count", "message_count", "client_count")
OF_TOPIC = ("depth", "memory_depth", "backend_depth", "message_count")


def latency_of(latency: Latency | None, topic: str, channel: str, host: str) -> Json:
    """End-to-end latencies of one node."""
    count = 0 if latency is None else latency.count
    percentiles = [{**each, "min": each.get("value", 0), "max": each.get("value", 0),
                    "average": each.get("value", 0), "count": count} for each in percentiles_of(latency)]
    return {"count": count, "percentiles": percentiles or None, "topic": topic, "channel": channel, "host": host}


def add_latency(total: Json, more: Json) -> None:
    """Adds those of another node: averages by count, and the extremes."""
    if more["percentiles"]:
        known = {each["quantile"]: each for each in total["percentiles"] or ()}
        for each in more["percentiles"]:
            there = known.get(each["quantile"])
            if there is None:
                known[each["quantile"]] = dict(each)
                continue
            count = there["count"] + each["count"]
            if count:
                there["average"] = (there["average"] * there["count"] + each["average"] * each["count"]) / count
            there["min"], there["max"] = min(there["min"], each["min"]), max(there["max"], each["max"])
            there["value"], there["count"] = there["max"], count
        total["percentiles"] = list(known.values())
    total["count"] += more["count"]


def fields(stats: Struct, keys: Iterable[str]) -> Json:
    """Fields and properties by name."""
    return {key: getattr(stats, key) for key in keys}


def client_json(client: ClientStats, node: str) -> Json:
    """A consumer."""
    return {"node": node, **fields(client, OF_CLIENT)}


def channel_json(channel: ChannelStats, topic: str, node: str, hostname: str, clients: bool) -> Json:
    """A channel of one node."""
    listed = [client_json(each, node) for each in channel.clients or ()] if clients else None
    return {"node": node, "hostname": hostname, "topic_name": topic, "channel_name": channel.channel_name,
            **fields(channel, SUMMED), "client_count": channel.consumers, "nodes": None, "clients": listed,
            "paused": channel.paused,
            "e2e_processing_latency": latency_of(channel.e2e_processing_latency, topic, channel.channel_name, node)}


def topic_json(topic: TopicStats, node: str, hostname: str, clients: bool = False) -> Json:
    """A topic of one node."""
    name = topic.topic_name
    return {"node": node, "hostname": hostname, "topic_name": name, **fields(topic, OF_TOPIC), "nodes": None,
            "channels": [channel_json(each, name, node, hostname, clients) for each in topic.channels or ()],
            "paused": topic.paused,
            "e2e_processing_latency": latency_of(topic.e2e_processing_latency, name, "", node)}


def summed_channel(parts: Iterable[Json], topic: str, name: str, with_nodes: bool) -> Json:
    """A channel over all nodes. with_nodes: with its parts and their clients."""
    total: Json = {"node": "*", "hostname": "", "topic_name": topic, "channel_name": name,
                   **dict.fromkeys(SUMMED, 0),
                   "nodes": [] if with_nodes else None, "clients": [] if with_nodes else None, "paused": False,
                   "e2e_processing_latency": latency_of(None, topic, name, "*")}
    for part in parts:
        for key in SUMMED:
            total[key] += part[key]
        total["paused"] = total["paused"] or part["paused"]
        add_latency(total["e2e_processing_latency"], part["e2e_processing_latency"])
        if with_nodes:
            total["nodes"].append(part)
            total["clients"] += part["clients"] or []
    return total


def summed_topic(parts: list[Json], name: str) -> Json:
    """A topic over all nodes, with its parts. nsqadmin's first part shares its channels with the sum, by mistake."""
    channels: dict[str, list[Json]] = {}
    for part in parts:
        for channel in part["channels"]:
            channels.setdefault(channel["channel_name"], []).append(channel)
    total: Json = {"node": "*", "hostname": "", "topic_name": name, **dict.fromkeys(OF_TOPIC, 0), "nodes": parts,
                   "channels": [summed_channel(its, name, channel, False) for channel, its in sorted(channels.items())],
                   "paused": any(part["paused"] for part in parts),
                   "e2e_processing_latency": latency_of(None, name, "", "*")}
    for part in parts:
        for key in OF_TOPIC:
            total[key] += part[key]
        add_latency(total["e2e_processing_latency"], part["e2e_processing_latency"])
    return total


def node_json(node: Known, newest: tuple[int, ...]) -> Json:
    """A node of the list."""
    producer = node.producer
    remotes = node.remote_addresses
    return {"remote_addresses": remotes, "remote_address": producer.remote_address, "hostname": producer.hostname,
            "broadcast_address": producer.broadcast_address, "tcp_port": producer.tcp_port,
            "http_port": producer.http_port, "version": producer.version,
            "topics": [{"topic": name, "tombstoned": mark} for name, mark in sorted(node.topics.items())],
            "out_of_date": version_key(producer.version) < newest}
