"""Origins of dead letters: stored beside their bodies in a log, and shown by every reader."""

import json

import pytest

from tests.rules.letters import ask, die, lines
from tests.rules.support import publish, set_rule, subscribe, until_channel
from tests.support.daemon import wait_until
from tests.tools.calling import call


@pytest.fixture
def node(daemon):
    return daemon("--topic-storage=log", "--broadcast-address=node.example", "--node-id=7")


def where(node):
    return "--nsqd", f"127.0.0.1:{node.tcp_port}", "--http", f"127.0.0.1:{node.http_port}"


def test_everything_that_reads_a_log_shows_them(node):
    set_rule(node, "t", "c", max_attempts=2)
    client = node.connect()
    client.ok("IDENTIFY", json.dumps({"client_id": 'a "b" é', "hostname": "h" * 500}).encode())
    client.sub("t", "c", 1)
    publish(node, "t", b"poison\xff")
    message = client.message()
    client.command(f"REQ {message.id.decode()} 0")
    client.command(f"REQ {client.message().id.decode()} 0")
    until_channel(node, "t", dead_letter_count=1)
    publish(node, "t.dead", b"no letter")
    assert node.stop() == 0
    node.start()
    letter, other = lines(node, "t.dead")
    origin = letter["origin"]
    assert origin | {"client": None} == {
        "topic": "t", "channel": "c", "node": "node.example", "node_id": 7, "id": message.id.decode(),
        "timestamp": message.timestamp, "attempts": 2, "reason": "requeued", "client": None}
    assert origin["client"]["client_id"] == 'a "b" é' and origin["client"]["hostname"] == "h" * 96
    assert origin["client"]["remote_address"].startswith("127.0.0.1:")
    assert letter["body_base64"] == "cG9pc29u/w==" and "origin" not in other and other["body"] == "no letter"
    peeked = ask(node, "GET", "/topic/peek?topic=t.dead")["messages"]
    assert [message.get("origin") for message in peeked] == [origin, None]
    shown = ask(node, "GET", "/dead/show?topic=t.dead")["messages"]
    assert [message["origin"] for message in shown] == [origin, None]
    read = call("topic", "read", "t.dead", "--json", *where(node))
    assert [json.loads(line).get("origin") for line in read.out.splitlines()] == [origin, None]
    assert "from t/c requeued" in call("peek", "t.dead", *where(node)).out
    reader = subscribe(node, "t.dead", "reader", rdy=10)
    assert [message.body for message in reader.messages(2)] == [b"poison\xff", b"no letter"]
    in_flight = ask(node, "GET", "/channel/peek?topic=t.dead&channel=reader&state=in_flight")["messages"]
    assert sorted((message["offset"], message.get("origin") == origin) for message in in_flight) == [(0, True), (1, False)]


def test_reasons(node):
    set_rule(node, "t", "c", max_attempts=1, requeue_on_disconnect=True)
    client = subscribe(node, "t", msg_timeout=1000)
    address = client.sock.getsockname()[1]
    publish(node, "t", b"slow")
    client.message()
    until_channel(node, "t", dead_letter_count=1)
    publish(node, "t", b"lost")
    client.message()
    client.close()
    until_channel(node, "t", dead_letter_count=2)
    set_rule(node, "t", "c", max_attempts=None)
    first = subscribe(node, "t")
    publish(node, "t", b"old")
    old = first.message()
    first.command("RDY 0")
    first.command(f"REQ {old.id.decode()} 0")
    until_channel(node, "t", depth=1)
    set_rule(node, "t", "c", max_attempts=1)
    first.command("RDY 1")
    until_channel(node, "t", dead_letter_count=3)
    found = {line["body"]: line["origin"] for line in lines(node, "t.dead")}
    assert {body: origin["reason"] for body, origin in found.items()} == {
        "slow": "timed_out", "lost": "disconnected", "old": "attempts"}
    assert found["old"]["client"] is None
    for body in ("slow", "lost"):
        assert found[body]["client"]["remote_address"] == f"127.0.0.1:{address}"


def test_many_letters_among_other_messages(node):
    """Frames of letters and of other messages, large bodies and small ones, read in pieces and after a kill."""
    bodies = [b"%d:" % number + b"x" * (number * 37 % 3000) for number in range(600)]
    for at in range(0, 600, 200):
        die(node, "t", "c", *bodies[at:at + 200])
        publish(node, "t.dead", *(b"plain" for _ in range(50)))
    node.kill()
    node.start()
    found, offset = [], 0
    while len(found) < 750:
        body = node.http("GET", f"/topic/read?topic=t.dead&offset={offset}&max_bytes=20000")[1]
        found += map(json.loads, body.splitlines())
        offset = found[-1]["offset"] + 1
    letters = [line for line in found if "origin" in line]
    assert sorted(line["body"].encode() for line in letters) == sorted(bodies)
    assert len({line["origin"]["id"] for line in letters}) == 600
    assert [line["offset"] for line in found] == list(range(750))
    counted = ask(node, "GET", "/dead/list?topic=t.dead")
    assert counted["waiting"] == 750 and {group["origin"]: group["count"] for group in counted["groups"]} == {
        "t/c": 600, None: 150}
    reader = subscribe(node, "t.dead", "reader", rdy=100)
    assert sorted(message.body for message in reader.messages(750, finish=True)) == sorted([*bodies, *[b"plain"] * 150])


def test_memory_has_no_room_for_them(daemon):
    node = daemon("--topic-storage=memory")
    die(node, "t", "c", b"x")
    peeked = ask(node, "GET", "/topic/peek?topic=t.dead")["messages"]
    assert [message["body"] for message in peeked] == ["x"] and "origin" not in peeked[0]
    wait_until(lambda: ask(node, "GET", "/dead")["topics"] == [
        {"topic": "t.dead", "storage": "memory", "waiting": 1, "channels": ["t/c"]}])
