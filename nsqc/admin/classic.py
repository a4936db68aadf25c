"""nsqadmin's JSON: sums over nodes, with its keys in its order."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from nsqc.admin.fleet import Known, version_key
from nsqc.wire.stats import ChannelStats, ClientStats, Latency, TopicStats, percentiles_of

NS = 1_000_000_000
SUMMED = ("depth", "memory_depth", "backend_depth", "in_flight_count", "deferred_count", "requeue_count",
          "timeout_count", "message_count", "client_count")
OF_TOPIC = ("depth", "memory_depth", "backend_depth", "message_count")
Json = dict[str, Any]       # Any: JSON


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


def client_json(client: ClientStats, node: str) -> Json:
    """A consumer."""
    connected = max(0, int(time.time()) - client.connect_ts) * NS
    return {"node": node, "remote_address": client.remote_address, "version": client.version,
            "client_id": client.client_id, "hostname": client.hostname, "user_agent": client.user_agent,
            "connect_ts": client.connect_ts, "connected": connected, "in_flight_count": client.in_flight_count,
            "ready_count": client.ready_count, "finish_count": client.finish_count,
            "requeue_count": client.requeue_count, "message_count": client.message_count,
            "sample_rate": client.sample_rate, "deflate": client.deflate, "snappy": client.snappy,
            "authed": client.authed, "auth_identity": client.auth_identity,
            "auth_identity_url": client.auth_identity_url, "tls": client.tls,
            "tls_cipher_suite": client.tls_cipher_suite, "tls_version": client.tls_version,
            "tls_negotiated_protocol": client.tls_negotiated_protocol,
            "tls_negotiated_protocol_is_mutual": client.tls_negotiated_protocol_is_mutual}


def channel_json(channel: ChannelStats, topic: str, node: str, hostname: str, clients: bool) -> Json:
    """A channel of one node."""
    listed = [client_json(each, node) for each in channel.clients or ()] if clients else None
    return {"node": node, "hostname": hostname, "topic_name": topic, "channel_name": channel.channel_name,
            "depth": channel.depth, "memory_depth": channel.depth - channel.backend_depth,
            "backend_depth": channel.backend_depth, "in_flight_count": channel.in_flight_count,
            "deferred_count": channel.deferred_count, "requeue_count": channel.requeue_count,
            "timeout_count": channel.timeout_count, "message_count": channel.message_count,
            "client_count": channel.consumers, "nodes": None, "clients": listed, "paused": channel.paused,
            "e2e_processing_latency": latency_of(channel.e2e_processing_latency, topic, channel.channel_name, node)}


def topic_json(topic: TopicStats, node: str, hostname: str, clients: bool = False) -> Json:
    """A topic of one node."""
    name = topic.topic_name
    return {"node": node, "hostname": hostname, "topic_name": name, "depth": topic.depth,
            "memory_depth": topic.depth - topic.backend_depth, "backend_depth": topic.backend_depth,
            "message_count": topic.message_count, "nodes": None,
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
