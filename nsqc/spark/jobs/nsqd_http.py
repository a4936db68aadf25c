"""nsqd's statistics of topics over HTTP."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections import Counter
from typing import Any, NamedTuple
from urllib.parse import quote

from nsqc.client.http import authorization
from nsqc.wire.outside import decode

SECONDS = 10


class NodeError(RuntimeError):
    """A node does not answer like an nsqd."""


class Counts(NamedTuple):
    """Sums over some nodes. published: accepted since their start, by topic; waiting: depth, by topic or
    topic:channel."""

    published: Counter[str]
    waiting: Counter[str]


# Any: JSON
def get(address: str, path: str, secret: str | None = None) -> Any:
    """The JSON answer of a node. Raises NodeError."""
    request = urllib.request.Request(f"http://{address}{path}", headers=authorization(secret))
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return decode(answer.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NodeError(f"http://{address}{path}: {getattr(error, 'reason', error)}") from None


# Any: JSON
def topics(address: str, topic: str = "", secret: str | None = None) -> list[dict[str, Any]]:
    """The topics in a node's /stats, or only this topic. Raises NodeError."""
    only = f"&topic={quote(topic, safe='')}" if topic else ""
    # Any: JSON
    stats: list[dict[str, Any]] | None = get(address, f"/stats?format=json&include_clients=false{only}",
                                                secret)["topics"]
    return stats or []


def counts(addresses: list[str], names: list[str], secret: str | None = None) -> Counts:
    """The counts of topics, over nodes by HTTP address. Raises NodeError."""
    sums = Counts(Counter(), Counter())
    for address in addresses:
        for name in names:
            for topic in topics(address, name, secret):
                sums.published[name] += topic["message_count"]
                sums.waiting[name] += topic["depth"]
                for channel in topic["channels"] or ():
                    sums.waiting[f"{name}:{channel['channel_name']}"] += channel["depth"]
    return sums


def http_addresses(given: dict[str, str]) -> list[str]:
    """The HTTP addresses reported by nsqlookupd; for nsqd's TCP addresses, those with the next port, the default, if
    the same nsqd answers there. given: options of the data sources. Raises NodeError."""
    if "nsqlookupd" in given:
        reported = {f"{node['broadcast_address']}:{node['http_port']}" for address in given["nsqlookupd"].split(",")
                    for node in get(address.strip(), "/nodes")["producers"] or ()}
        return sorted(reported)
    addresses = []
    for address in given["nsqd"].split(","):
        host, _, port = address.strip().rpartition(":")
        guess = f"{host}:{int(port) + 1}"
        try:
            info = get(guess, "/info", given.get("authSecret"))
        except NodeError:
            info = {}
        if not isinstance(info, dict) or info.get("tcp_port") != int(port):
            raise NodeError(f"{guess} is not the HTTP address of {address}: give it by --http")
        addresses.append(guess)
    return addresses
