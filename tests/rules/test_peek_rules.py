"""/channel/peek shows what came back to channels with message_ttl, and the front of ordered ones."""

import json

import pytest

from tests.rules.support import publish, set_rule, subscribe, until_channel
from tests.rules.test_bounds import numbered


@pytest.fixture(params=["memory", "log"])
def node(request, daemon):
    return daemon(f"--topic-storage={request.param}", "--mem-queue-size=50")


def pages(node, most: int, state: str = "queued") -> tuple[list[dict], list[int]]:
    """The messages of all pages, and how many each has."""
    found, sizes, begin = [], [], ""
    while begin is not None:
        page = json.loads(node.http("GET", f"/channel/peek?topic=t&channel=c&state={state}&max_messages={most}"
                                           + (f"&from={begin}" if begin else ""))[1])
        found += page["messages"]
        sizes.append(len(page["messages"]))
        begin = page["next"]
    return found, sizes


def bodies(messages: list[dict]) -> list[bytes]:
    return [message["body"].encode() for message in messages]


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_messages_that_came_back(node, most):
    set_rule(node, "t", "c", message_ttl="1h")
    client = subscribe(node, "t", rdy=20)
    publish(node, "t", *numbered(30))
    messages = client.messages(20)
    client.command("RDY 0")
    for message in messages:
        client.command(f"REQ {message.id.decode()} 0")
    until_channel(node, "t", depth=30, in_flight_count=0)
    found, sizes = pages(node, most)
    assert sorted(bodies(found)) == sorted(numbered(30)) and max(sizes) <= most
    assert bodies(found)[:20] == list(numbered(20))
    assert {message["attempts"] for message in found[:20]} == {1} and {message["attempts"] for message in found[20:]} == {0}
    assert len({"offset" in message for message in found}) == 1
    # Some are delivered, others stay: each of these is shown once.
    client.command("RDY 5")
    client.messages(5)
    client.command("RDY 0")
    until_channel(node, "t", depth=25, in_flight_count=5)
    assert len(set(bodies(pages(node, most)[0]))) == 25


def test_the_front_of_an_ordered_channel(node):
    set_rule(node, "t", "c", ordered=True)
    client = subscribe(node, "t", rdy=1)
    publish(node, "t", b"0", b"1", b"2")
    message = client.message()
    client.command("RDY 0")
    client.command(f"REQ {message.id.decode()} 0")
    until_channel(node, "t", depth=3)
    found, _ = pages(node, 1)
    assert bodies(found) == [b"0", b"1", b"2"]
    assert [message["attempts"] for message in found] == [1, 0, 0]
    client.command("RDY 1")
    client.command(f"REQ {client.message().id.decode()} 600000")
    until_channel(node, "t", deferred_count=1, depth=2)
    assert bodies(pages(node, 10)[0]) == [b"1", b"2"]
    deferred, _ = pages(node, 10, "deferred")
    assert bodies(deferred) == [b"0"] and deferred[0]["due"] > deferred[0]["timestamp"]
