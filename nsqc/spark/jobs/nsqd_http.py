"""nsqd's statistics of topics over HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from nsqc.client.address import split_address
from nsqc.client.lookup import fetch
from nsqc.wire.nodehosts import NodeHosts
from nsqc.wire.outside import decode

SECONDS = 10


class NodeError(RuntimeError):
    """A node does not answer like an nsqd."""


class Counts(NamedTuple):
    """Sums over some nodes. published: accepted since their start, by topic; waiting: depth, by topic or
    topic:channel."""

    published: Counter[str]
    waiting: Counter[str]


class Secret(NamedTuple):
    """A secret, and the nodes that get it."""

    text: str | None = None
    hosts: str = "*"

    def of(self, address: str) -> str | None:
        """The secret, if the node may have it."""
        return self.text if NodeHosts([self.hosts]).cover(split_address(address)[0]) else None


NONE = Secret()


def secret_in(given: Mapping[str, str], names_nodes: bool = False) -> Secret:
    """The secret in options of the data sources. names_nodes: the operator gave the HTTP addresses."""
    is_open = names_nodes or "nsqlookupd" not in given
    return Secret(given.get("authSecret"), "*" if is_open else given.get("nodeAddresses", ""))


# Any: JSON
def get(address: str, path: str, secret: Secret = NONE) -> Any:
    """The JSON answer of a node. Raises NodeError."""
    try:
        status, body = fetch(address, path, SECONDS, secret=secret.of(address))
        if status != HTTPStatus.OK:
            withheld = "; give --node-addresses" if secret.text and not secret.of(address) else ""
            raise NodeError(f"http://{address}{path}: {HTTPStatus(status).phrase}{withheld}")
        return decode(body)
    except (OSError, ValueError) as error:
        raise NodeError(f"http://{address}{path}: {error}") from None


# Any: JSON
def topics(address: str, topic: str = "", secret: Secret = NONE) -> list[dict[str, Any]]:
    """The topics in a node's /stats, or only this topic. Raises NodeError."""
    only = f"&topic={quote(topic, safe='')}" if topic else ""
    # Any: JSON
    stats: list[dict[str, Any]] | None = get(address, f"/stats?format=json&include_clients=false{only}",
                                                secret)["topics"]
    return stats or []


def counts(addresses: list[str], names: list[str], secret: Secret = NONE) -> Counts:
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
            info = get(guess, "/info", secret_in(given))
        except NodeError:
            info = {}
        if not isinstance(info, dict) or info.get("tcp_port") != int(port):
            raise NodeError(f"{guess} is not the HTTP address of {address}: give it by --http")
        addresses.append(guess)
    return addresses
