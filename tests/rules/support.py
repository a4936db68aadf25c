"""Delivery rules of channels, as tests set and see them."""

from __future__ import annotations

import json

from tests.support.daemon import Client, Daemon, wait_until


def set_rule(node: Daemon, topic: str, channel: str, **changes: object) -> dict:
    """PUT /channel/rules, which must succeed; the new rule."""
    status, answer = node.http("PUT", f"/channel/rules?topic={topic}&channel={channel}", json.dumps(changes).encode())
    assert status == 200, answer
    return json.loads(answer)


def make(node: Daemon, topic: str = "t", channel: str = "c") -> None:
    """Creates a topic and a channel."""
    node.post(f"/topic/create?topic={topic}")
    node.post(f"/channel/create?topic={topic}&channel={channel}")


def numbered(count: int, start: int = 0) -> tuple[bytes, ...]:
    """Bodies that are numbers."""
    return tuple(b"%d" % number for number in range(start, start + count))


def publish(node: Daemon, topic: str, *bodies: bytes) -> None:
    """PUB or MPUB on a separate connection, so that consumers read only messages."""
    client = node.connect()
    client.pub(topic, *bodies)
    client.close()


def subscribe(node: Daemon, topic: str, channel: str = "c", rdy: int = 1, msg_timeout: int | None = None) -> Client:
    """A consumer; msg_timeout in milliseconds."""
    client = node.connect()
    if msg_timeout is not None:
        client.ok("IDENTIFY", json.dumps({"msg_timeout": msg_timeout}).encode())
    return client.sub(topic, channel, rdy)


def until_channel(node: Daemon, topic: str, channel: str = "c", **wanted: int) -> dict:
    """Waits for values in the channel's /stats; returns them all."""
    def there() -> dict | None:
        found = node.channel(topic, channel)
        return found if all(found.get(key, 0) == value for key, value in wanted.items()) else None

    return wait_until(there, f"{wanted} of {topic}/{channel}")


def set_topic_rule(node: Daemon, topic: str, **changes: object) -> dict:
    """PUT /topic/rules, which must succeed; the new rule."""
    status, answer = node.http("PUT", f"/topic/rules?topic={topic}", json.dumps(changes).encode())
    assert status == 200, answer
    return json.loads(answer)


def until_topic(node: Daemon, topic: str, **wanted: int) -> dict:
    """Waits for values in the topic's own /stats; returns them all."""
    def there() -> dict | None:
        found = node.stats(topic)
        return found if all(found.get(key, 0) == value for key, value in wanted.items()) else None

    return wait_until(there, f"{wanted} of {topic}")


def dead(node: Daemon, topic: str, count: int) -> list[bytes]:
    """The bodies in a dead-letter topic, which has no channel yet; they are finished."""
    wait_until(lambda: any(found["topic_name"] == topic and found["depth"] == count for found in node.stats()["topics"]),
               f"{count} messages in {topic}")
    reader = subscribe(node, topic, "reader", rdy=1000)
    bodies = [message.body for message in reader.messages(count, finish=True)]
    assert reader.quiet(0.1)
    reader.close()
    return bodies
