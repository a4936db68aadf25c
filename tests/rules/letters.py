"""Dead letters, as tests make and see them."""

from __future__ import annotations

import json
from typing import Any

from tests.rules.support import publish, set_rule, subscribe, until_channel
from tests.support.daemon import Daemon


def die(node: Daemon, topic: str, channel: str, *bodies: bytes, attempts: int = 1) -> None:
    """Publishes messages that fail in a channel until they are dead letters."""
    set_rule(node, topic, channel, max_attempts=attempts)
    client = subscribe(node, topic, channel, rdy=len(bodies))
    before = node.channel(topic, channel).get("dead_letter_count", 0)
    publish(node, topic, *bodies)
    for _ in range(attempts * len(bodies)):
        client.command(f"REQ {client.message().id.decode()} 0")
    until_channel(node, topic, channel, dead_letter_count=before + len(bodies), in_flight_count=0, deferred_count=0)
    client.close()


# Any: JSON
def ask(node: Daemon, method: str, path: str, status: int = 200) -> Any:
    """The answer of a call."""
    found, body = node.http(method, path)
    assert found == status, (path, found, body)
    return json.loads(body)


def waiting(node: Daemon, topic: str) -> list[bytes]:
    """The bodies of the waiting letters."""
    bodies, begin = [], 0
    while begin is not None:
        page = ask(node, "GET", f"/dead/show?topic={topic}&limit=1000&from={begin}")
        bodies += [message["body"].encode() for message in page["messages"]]
        begin = page["next"]
    return bodies


# Any: JSON
def lines(node: Daemon, topic: str) -> list[dict[str, Any]]:
    """The records of a log."""
    return [json.loads(line) for line in node.http("GET", f"/topic/read?topic={topic}")[1].splitlines()]
