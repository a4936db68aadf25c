"""What live nsqd say of their topics, over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from typing import Any, NamedTuple
from urllib.parse import quote

SECONDS = 10


class NodeError(RuntimeError):
    """A node that does not answer as nsqd does."""


class Counts(NamedTuple):
    """Over some nodes. published: taken since they started, by topic; waiting: depth, by topic or topic:channel."""

    published: Counter[str]
    waiting: Counter[str]


def get(address: str, path: str) -> Any:
    """The JSON answer of one node. Raises NodeError."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=SECONDS) as answer:
            return json.load(answer)
    except (OSError, ValueError) as error:
        raise NodeError(f"http://{address}{path}: {getattr(error, 'reason', error)}") from None


def counts(addresses: list[str], topics: list[str]) -> Counts:
    """The sum over the nodes, HTTP addresses. Raises NodeError."""
    found = Counts(Counter(), Counter())
    for address in addresses:
        for topic in topics:
            answer = get(address, f"/stats?format=json&include_clients=false&topic={quote(topic, safe='')}")
            for one in answer["topics"] or ():
                found.published[topic] += one["message_count"]
                found.waiting[topic] += one["depth"]
                for channel in one["channels"] or ():
                    found.waiting[f"{topic}:{channel['channel_name']}"] += channel["depth"]
    return found


def http_addresses(peers: dict[str, str]) -> list[str]:
    """Of the nodes that nsqlookupd tells, or, for nsqd's TCP addresses, of the port behind each, which is the default,
    where that is the same nsqd. Raises NodeError."""
    if "nsqlookupd" in peers:
        known = {f"{one['broadcast_address']}:{one['http_port']}" for address in peers["nsqlookupd"].split(",")
                 for one in get(address.strip(), "/nodes")["producers"] or ()}
        return sorted(known)
    found = []
    for address in peers["nsqd"].split(","):
        host, _, port = address.strip().rpartition(":")
        guess = f"{host}:{int(port) + 1}"
        try:
            told = get(guess, "/info")
        except NodeError:
            told = {}
        if not isinstance(told, dict) or told.get("tcp_port") != int(port):
            raise NodeError(f"{guess} is not the HTTP address of {address}: tell it by --http")
        found.append(guess)
    return found
