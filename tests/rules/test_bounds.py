"""max_depth, max_bytes and overflow: publishes are refused, or the oldest messages are removed."""

import json

import pytest

from tests.rules.letters import die, waiting
from tests.rules.support import (
    dead,
    make,
    numbered,
    publish,
    set_rule,
    set_topic_rule,
    subscribe,
    until_channel,
    until_topic,
)
from tests.support.daemon import batch, logged


def refused(node, line: str, body: bytes) -> str:
    """A publish that must be refused; returns the reason."""
    client = node.connect()
    client.command(line, body)
    kind, data = client.frame()
    client.close()
    verb = line.split()[0]
    assert kind == 1 and data.startswith(f"E_{verb}_FAILED {verb} failed ".encode()), (kind, data)
    return data.decode().partition(" failed ")[2]


def refused_http(node, path: str, body: bytes) -> str:
    status, answer = node.http("POST", path, body)
    assert status == 503, (status, answer)
    text = json.loads(answer)["message"]
    assert text.startswith("FAILED - ")
    return text.removeprefix("FAILED - ")


def test_a_full_channel_refuses_publishes(node):
    make(node)
    make(node, channel="other")
    set_rule(node, "t", "c", max_depth=3)
    publish(node, "t", *numbered(3))
    until_channel(node, "t", depth=3)
    reason = "channel c has 3 messages, its max_depth is 3 (PUT /channel/rules)"
    assert refused(node, "PUB t", b"x") == reason
    assert refused(node, "DPUB t 1000", b"x") == reason
    assert refused_http(node, "/pub?topic=t", b"x") == reason
    assert node.stats("t")["message_count"] == 3 and node.channel("t", "other")["depth"] == 3
    assert 'nsqc_publishes_refused_total{reason="full"} 3' in node.http("GET", "/metrics")[1].decode()
    logged(node, f"TOPIC(t): publishes are refused: {reason}")
    client = subscribe(node, "t")
    client.message()
    until_channel(node, "t", depth=2, in_flight_count=1)
    publish(node, "t", b"3")
    until_channel(node, "t", depth=3)


def test_a_batch_is_published_whole_or_not_at_all(node):
    make(node)
    set_rule(node, "t", "c", max_depth=10)
    publish(node, "t", *numbered(8))
    until_channel(node, "t", depth=8)
    reason = "channel c has 8 messages, its max_depth is 10 (PUT /channel/rules): a batch of 3 messages does not fit"
    assert refused(node, "MPUB t", batch(*numbered(3))) == reason
    assert refused_http(node, "/mpub?topic=t", b"a\n\nb\nc\n") == reason
    assert refused_http(node, "/mpub?topic=t&binary=true", batch(*numbered(3))) == reason
    assert node.stats("t")["message_count"] == 8
    node.post("/mpub?topic=t", b"a\n\nb\n")
    until_channel(node, "t", depth=10)
    node.post("/channel/empty?topic=t&channel=c")
    assert refused(node, "MPUB t", batch(*numbered(11))).endswith("a batch of 11 messages does not fit")
    publish(node, "t", *numbered(10))
    until_channel(node, "t", depth=10)


def test_a_large_batch_takes_slices_and_is_still_whole(node):
    make(node)
    set_rule(node, "t", "c", max_depth=60_000)
    publish(node, "t", *numbered(50_000))
    until_channel(node, "t", depth=50_000)
    refused(node, "MPUB t", batch(*numbered(10_001)))
    big = batch(b"x" * 100_000, *numbered(9_999))       # gathered
    client = node.connect()
    client.ok("MPUB t", big)
    until_channel(node, "t", depth=60_000)
    refused(node, "PUB t", b"x")
    assert node.stats("t")["message_count"] == 60_000


def test_the_oldest_messages_are_dropped(node):
    make(node)
    set_rule(node, "t", "c", max_depth=5, overflow="drop-oldest")
    for body in numbered(12):
        publish(node, "t", body)
    until_channel(node, "t", depth=5, overflow_count=7)
    publish(node, "t", *numbered(20, 100))
    until_channel(node, "t", depth=5, overflow_count=27)
    client = subscribe(node, "t", rdy=10)
    assert [message.body for message in client.messages(5, finish=True)] == list(numbered(5, 115))
    until_channel(node, "t", depth=0, in_flight_count=0)
    assert 'nsqc_channel_overflows_total{topic="t",channel="c"} 27' in node.http("GET", "/metrics")[1].decode()


def test_the_oldest_messages_are_moved(node):
    make(node)
    set_rule(node, "t", "c", max_depth=5, overflow="dead-letter")
    publish(node, "t", *numbered(3000))
    until_channel(node, "t", depth=5, deferred_count=0, overflow_count=2995, dead_letter_count=2995)
    assert dead(node, "t.dead", 2995) == list(numbered(2995))
    client = subscribe(node, "t", rdy=10)
    assert [message.body for message in client.messages(5, finish=True)] == list(numbered(5, 2995))


def test_dead_letters_that_cannot_move_stop_publishers(daemon):
    """Messages that the dead-letter topic refuses wait in memory, so their number is bounded."""
    node = daemon("--max-topics=1")
    make(node)
    set_rule(node, "t", "c", max_depth=5, overflow="dead-letter")
    client = node.connect()
    published = 0
    while published < 10_000:
        client.command("MPUB t", batch(*numbered(100, published)))
        kind, data = client.frame()
        if kind == 1:
            break
        published += 100
    assert kind == 1 and data.endswith(b", and its dead-letter topic t.dead accepts nothing"), data
    stats = node.channel("t", "c")
    assert stats["depth"] + stats["deferred_count"] == published
    assert node.stop() == 0
    node.start("--max-topics=0")
    until_channel(node, "t", depth=5, deferred_count=0)
    assert sorted(map(int, dead(node, "t.dead", published - 5)))[0] == 0


@pytest.mark.parametrize("overflow", ["drop-oldest", "dead-letter"])
def test_a_limit_beyond_memory(daemon, overflow):
    node = daemon("--mem-queue-size=10", "--max-bytes-per-file=20000")
    make(node)
    set_rule(node, "t", "c", max_depth=100, overflow=overflow)
    for start in range(0, 5000, 250):
        publish(node, "t", *(body + b"x" * 100 for body in numbered(250, start)))
    until_channel(node, "t", depth=100, deferred_count=0, overflow_count=4900)
    client = subscribe(node, "t", rdy=100)
    received = {int(message.body.rstrip(b"x")) for message in client.messages(100, finish=True)}
    assert len(received) == 100
    if overflow == "dead-letter":
        moved = {int(body.rstrip(b"x")) for body in dead(node, "t.dead", 4900)}
        assert not moved & received and len(moved) == 4900
    assert max(received) == 4999


def test_a_limit_of_bytes(daemon):
    node = daemon()
    make(node)
    set_rule(node, "t", "c", max_bytes=1000)
    publish(node, "t", b"x" * 600)
    reason = "channel c has 600 bytes, its max_bytes is 1000 (PUT /channel/rules)"
    assert refused(node, "PUB t", b"x" * 401) == reason
    publish(node, "t", b"x" * 400)
    set_rule(node, "t", "c", overflow="drop-oldest")
    publish(node, "t", b"y" * 500)
    until_channel(node, "t", depth=2, overflow_count=1)
    publish(node, "t", b"z" * 1001)
    until_channel(node, "t", depth=0, overflow_count=4)


def test_a_limit_of_bytes_on_disk_and_in_a_log(node, daemon):
    make(node)
    set_rule(node, "t", "c", max_bytes=100_000)
    for _ in range(90):
        publish(node, "t", b"x" * 1000)
    refused(node, "PUB t", b"x" * 10_001)
    disk = daemon("--mem-queue-size=0")
    make(disk)
    set_rule(disk, "t", "c", max_bytes=100_000)
    for _ in range(95):
        publish(disk, "t", b"x" * 1000)
    refused(disk, "PUB t", b"x" * 10_000)
    client = subscribe(disk, "t", rdy=1000)
    client.messages(95, finish=True)
    until_channel(disk, "t", depth=0, in_flight_count=0)
    publish(disk, "t", b"x" * 10_000)


def test_what_comes_back_is_never_refused(node):
    set_rule(node, "t", "c", max_depth=2)
    client = subscribe(node, "t", rdy=4)
    for _ in range(2):
        publish(node, "t", *numbered(2))
    received = client.messages(4)
    client.command("RDY 0")
    for message in received:
        client.command(f"REQ {message.id.decode()} 0")
    until_channel(node, "t", depth=4)
    assert refused(node, "PUB t", b"x").startswith("channel c has 4 messages")
    set_rule(node, "t", "c", overflow="drop-oldest")
    until_channel(node, "t", depth=2, overflow_count=2)


def test_what_comes_back_beyond_the_limit_pushes_out_the_oldest(node):
    set_rule(node, "t", "c", max_depth=2, overflow="drop-oldest")
    client = subscribe(node, "t", rdy=2)
    publish(node, "t", *numbered(2))
    received = client.messages(2)
    client.command("RDY 0")
    publish(node, "t", *numbered(2, 2))
    for message in received:
        client.command(f"REQ {message.id.decode()} 0")
    until_channel(node, "t", depth=2, in_flight_count=0, overflow_count=2)


def test_a_topic_without_channels(daemon):
    node = daemon("--mem-queue-size=10")
    set_topic_rule(node, "t", max_depth=20)
    set_topic_rule(node, "u", max_depth=20, overflow="drop-oldest")
    set_topic_rule(node, "v", max_depth=20, overflow="dead-letter")
    for topic in "tuv":
        node.post(f"/topic/create?topic={topic}")
        publish(node, topic, *numbered(20))
    for topic in "tv":      # dead letters originate in channels
        assert refused(node, f"PUB {topic}", b"x") == (
            f"topic {topic} has 20 messages, its max_depth is 20 (PUT /topic/rules)")
    publish(node, "u", *numbered(30, 20))
    until_topic(node, "u", depth=20, overflow_count=30)
    publish(node, "u", b"50")
    until_topic(node, "u", depth=20, overflow_count=31)
    make(node)
    until_channel(node, "t", depth=20)
    assert refused(node, "PUB t", b"x") == "channel c has 20 messages, its max_depth is 20 (topic: PUT /topic/rules)"


def test_a_paused_topic_in_a_log(daemon):
    node = daemon("--topic-storage=log")
    make(node)
    set_topic_rule(node, "t", max_depth=5)
    node.post("/topic/pause?topic=t")
    publish(node, "t", *numbered(5))
    assert refused(node, "PUB t", b"x").startswith("topic t has 5 messages")
    node.post("/topic/unpause?topic=t")
    assert refused(node, "PUB t", b"x").startswith("channel c has 5 messages")


def test_rules_end_with_their_keys(node):
    make(node)
    set_topic_rule(node, "t", max_depth=2)
    publish(node, "t", *numbered(2))
    refused(node, "PUB t", b"x")
    set_rule(node, "t", "c", max_depth=0)
    publish(node, "t", b"x")
    set_rule(node, "t", "c", max_depth=None)
    refused(node, "PUB t", b"x")
    set_topic_rule(node, "t", max_depth=None)
    publish(node, "t", b"x")
    until_channel(node, "t", depth=4)


def test_a_channel_of_a_full_topic_that_is_deleted(node):
    make(node)
    make(node, channel="other")
    set_rule(node, "t", "c", max_depth=1)
    publish(node, "t", b"x")
    refused(node, "PUB t", b"x")
    node.post("/channel/delete?topic=t&channel=c")
    publish(node, "t", b"x")
    until_channel(node, "t", "other", depth=2)


def test_a_burst_is_not_refused_while_the_dead_letter_topic_is_well(node):
    make(node)
    make(node, "t.dead", "d")
    set_rule(node, "t", "c", max_depth=10, overflow="dead-letter")
    client = node.connect()
    count = 30000
    client.send(b"".join(b"PUB t\n\x00\x00\x00\x05%05d" % number for number in range(count)))
    for _ in range(count):
        assert client.frame() == (0, b"OK")
    until_channel(node, "t", depth=10, dead_letter_count=count - 10, deferred_count=0)
    client.ok("MPUB t", batch(*numbered(20000)))
    client.pub("t", b"x")
    until_channel(node, "t", depth=10, dead_letter_count=count + 20000 - 9, deferred_count=0)


def test_deferred_messages_that_become_due_push_out_the_oldest(node):
    make(node)
    set_rule(node, "t", "c", max_depth=3, overflow="drop-oldest")
    client = node.connect()
    for number in range(5):
        client.ok("DPUB t 300", b"%d" % number)
    until_channel(node, "t", depth=3, deferred_count=0, overflow_count=2)


def test_redriven_letters_respect_the_channels_limit(daemon):
    node = daemon("--topic-storage=log")
    die(node, "t", "c", *numbered(5))
    set_rule(node, "t", "c", max_depth=2)
    status, answer = node.http("POST", "/dead/redrive?topic=t.dead")
    assert status == 503 and "channel c has 2 messages, its max_depth is 2" in json.loads(answer)["message"]
    until_channel(node, "t", depth=2)
    assert len(waiting(node, "t.dead")) == 3
