"""message_ttl: messages expire while they wait, are dropped or moved, and are never delivered late."""

import json
import signal
import time

import pytest

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
from tests.support.daemon import wait_until

LONG = "20m"


def test_messages_expire_without_a_consumer(node):
    make(node)
    make(node, channel="other")
    set_rule(node, "t", "c", message_ttl="1s")
    publish(node, "t", *numbered(5))
    stats = until_channel(node, "t", depth=0, expired_count=5)
    assert stats["rules"] == {"message_ttl": "1s"} and "dead_letter_count" not in stats
    until_channel(node, "t", "other", depth=5)
    assert subscribe(node, "t").quiet(0.1)
    metrics = node.http("GET", "/metrics")[1].decode()
    assert 'nsqc_channel_expired_total{topic="t",channel="c"} 5' in metrics
    assert 'nsqc_channel_expired_total{topic="t",channel="other"} 0' in metrics


def test_expired_messages_are_moved(node):
    make(node)
    set_rule(node, "t", "c", message_ttl="1s", expired="dead-letter")
    publish(node, "t", *numbered(3000))
    until_channel(node, "t", depth=0, deferred_count=0, expired_count=3000, dead_letter_count=3000)
    assert dead(node, "t.dead", 3000) == list(numbered(3000))


def test_a_rule_set_later_finds_what_has_expired(node):
    make(node)
    publish(node, "t", *numbered(2000))
    time.sleep(1.1)
    publish(node, "t", b"young")
    set_rule(node, "t", "c", message_ttl="1s")
    until_channel(node, "t", expired_count=2000)
    set_rule(node, "t", "c", message_ttl=LONG)
    publish(node, "t", b"next")
    assert subscribe(node, "t").message().body in (b"young", b"next")


@pytest.mark.parametrize("rule", [{"message_ttl": "1s"}, {"message_ttl": "1s", "expired": "dead-letter"}])
def test_messages_on_disk_expire(daemon, rule):
    node = daemon("--mem-queue-size=10", "--max-bytes-per-file=100000")
    make(node)
    set_rule(node, "t", "c", **rule)
    publish(node, "t", *(b"%d" % number + b"x" * 200 for number in range(5000)))
    until_channel(node, "t", depth=0, backend_depth=0, deferred_count=0, expired_count=5000)
    if "expired" in rule:
        assert len(dead(node, "t.dead", 5000)) == 5000
    publish(node, "t", b"fresh")
    assert subscribe(node, "t").message().body == b"fresh"


def test_what_fails_after_its_time_is_not_delivered_again(node):
    set_rule(node, "t", "c", message_ttl="2s")
    client = subscribe(node, "t", rdy=10, msg_timeout=2500)
    publish(node, "t", b"requeued", b"delayed", b"late", b"finished")
    messages = {message.body: message for message in client.messages(4)}
    time.sleep(2.1)
    client.command(f"REQ {messages[b'requeued'].id.decode()} 0")
    client.command(f"REQ {messages[b'delayed'].id.decode()} 5000")
    client.fin(messages[b"finished"])
    until_channel(node, "t", depth=0, deferred_count=0, in_flight_count=0, expired_count=3, requeue_count=2,
                  timeout_count=1)
    publish(node, "t", b"fresh")
    assert client.message().body == b"fresh"


def test_a_message_that_came_back_expires_before_younger_ones(node):
    set_rule(node, "t", "c", message_ttl="6s")
    client = subscribe(node, "t")
    publish(node, "t", b"old")
    message = client.message()
    client.command("RDY 0")
    time.sleep(4)
    publish(node, "t", b"young")
    client.command(f"REQ {message.id.decode()} 0")
    until_channel(node, "t", depth=2)
    until_channel(node, "t", depth=1, expired_count=1)
    client.command("RDY 1")
    assert client.message().body == b"young"


def test_messages_that_came_back_wait_their_turn(node):
    """They are delivered after the messages waiting when they came back, as without message_ttl."""
    set_rule(node, "t", "c", message_ttl=LONG)
    client = subscribe(node, "t", rdy=2)
    publish(node, "t", *numbered(6))
    first = client.messages(2)
    client.command("RDY 0")
    for message in first:
        client.command(f"REQ {message.id.decode()} 0")
    until_channel(node, "t", depth=6)
    client.command("RDY 1")
    received = [(message.body, message.attempts) for message in client.messages(6, finish=True)]
    assert received == [(b"2", 1), (b"3", 1), (b"4", 1), (b"5", 1), (b"0", 2), (b"1", 2)]
    until_channel(node, "t", depth=0, in_flight_count=0)


def test_deferred_messages_expire(daemon):
    node = daemon()
    set_rule(node, "t", "c", message_ttl="1s")
    client = subscribe(node, "t")
    publish(node, "t", b"requeued")
    client.command(f"REQ {client.message().id.decode()} 600000")
    until_channel(node, "t", deferred_count=0, depth=0, expired_count=1)
    publisher = node.connect()
    publisher.ok("DPUB t 600000", b"deferred")
    until_channel(node, "t", deferred_count=0, depth=0, expired_count=2)


def test_a_longer_life_leaves_delays_alone(daemon):
    """A delay that message_ttl cut short is honoured if the rule is removed in time."""
    node = daemon()
    set_rule(node, "t", "c", message_ttl="1500ms")
    client = subscribe(node, "t")
    publish(node, "t", b"x")
    client.command(f"REQ {client.message().id.decode()} 600000")
    until_channel(node, "t", deferred_count=1)
    set_rule(node, "t", "c", message_ttl=None)
    assert client.quiet(2.5)
    until_channel(node, "t", deferred_count=1, depth=0, in_flight_count=0)


def test_in_a_log_deferred_messages_expire_when_they_are_due(daemon):
    node = daemon("--topic-storage=log")
    set_rule(node, "t", "c", message_ttl="1s")
    client = subscribe(node, "t")
    publish(node, "t", b"requeued")
    client.command(f"REQ {client.message().id.decode()} 1500")
    publisher = node.connect()
    publisher.ok("DPUB t 1500", b"deferred")
    until_channel(node, "t", deferred_count=0, depth=0, expired_count=2)
    assert client.quiet(0.1)


def test_an_ordered_channel_goes_on_behind_an_expired_message(node):
    set_rule(node, "t", "c", ordered=True, requeue_delay=LONG, requeue_max=LONG, message_ttl="3s")
    client = subscribe(node, "t")
    publish(node, "t", b"poison")
    client.command(f"REQ {client.message().id.decode()} 0")
    until_channel(node, "t", deferred_count=1)
    until_channel(node, "t", deferred_count=0, expired_count=1)
    publish(node, "t", b"next")
    assert client.message().body == b"next"


def test_the_rule_of_a_topic_is_that_of_its_channels(node):
    make(node)
    make(node, channel="own")
    set_rule(node, "t", "own", message_ttl=0)
    set_topic_rule(node, "t", message_ttl="1s")
    make(node, channel="late")
    publish(node, "t", *numbered(3))
    for channel in ("c", "late"):
        until_channel(node, "t", channel, depth=0, expired_count=3)
    until_channel(node, "t", "own", depth=3)
    status, answer = node.http("GET", "/channel/rules?topic=t&channel=c")
    assert status == 200 and json.loads(answer)["source"] == "topic: PUT /topic/rules"
    assert json.loads(answer)["message_ttl"] == "1s"
    set_topic_rule(node, "t", message_ttl=None)
    publish(node, "t", *numbered(2))
    until_channel(node, "t", depth=2)
    assert "rules" not in node.channel("t", "c")


def test_messages_of_a_topic_without_channels_expire(daemon):
    node = daemon("--mem-queue-size=100")
    set_topic_rule(node, "t", message_ttl="1s")
    node.post("/topic/create?topic=t")
    publish(node, "t", *numbered(1000))
    until_topic(node, "t", depth=0, backend_depth=0, expired_count=1000)
    assert 'nsqc_topic_expired_total{topic="t"} 1000' in node.http("GET", "/metrics")[1].decode()
    client = subscribe(node, "t")
    publish(node, "t", b"fresh")
    assert client.message().body == b"fresh"


def test_of_a_dead_letter_topic_nothing_is_lost(daemon):
    """Messages that expire there cannot go to a dead-letter topic: they stay, as in a topic without channels."""
    node = daemon()
    set_topic_rule(node, "t.dead", message_ttl="100ms", expired="dead-letter")
    set_topic_rule(node, "u", message_ttl="100ms", expired="dead-letter")
    make(node, "t.dead")
    node.post("/topic/create?topic=u")
    publish(node, "t.dead", b"x")
    publish(node, "u", b"y")
    time.sleep(1.5)
    until_channel(node, "t.dead", depth=1)
    until_topic(node, "u", depth=1)
    make(node, "u")
    until_channel(node, "u", depth=0, dead_letter_count=1)


def test_what_an_earlier_run_has_left_expires(node):
    make(node)
    publish(node, "t", *numbered(100))
    assert node.stop() == 0
    time.sleep(1)
    node.start()
    set_rule(node, "t", "c", message_ttl="1s")
    until_channel(node, "t", depth=0, expired_count=100)
    publish(node, "t", b"fresh")
    set_rule(node, "t", "c", message_ttl=LONG)
    assert node.stop() == 0
    node.start()
    assert subscribe(node, "t").message().body == b"fresh"


def test_a_stop_keeps_what_came_back(node):
    set_rule(node, "t", "c", message_ttl=LONG)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", *numbered(100))
    received = client.messages(100)
    client.command("RDY 0")
    for message in received:
        client.command(f"REQ {message.id.decode()} 0")
    until_channel(node, "t", depth=100)
    assert node.stop() == 0
    node.start()
    client = subscribe(node, "t", rdy=100)
    assert sorted(message.body for message in client.messages(100, finish=True)) == sorted(numbered(100))
    until_channel(node, "t", depth=0, in_flight_count=0)


def test_emptying_and_seeking_forget_what_came_back(daemon):
    node = daemon("--topic-storage=log", "--log-retain-time=1h")
    set_rule(node, "t", "c", message_ttl=LONG)
    client = subscribe(node, "t", rdy=10)
    publish(node, "t", *numbered(10))
    received = client.messages(10)
    client.command("RDY 0")
    for message in received:
        client.command(f"REQ {message.id.decode()} 0")
    until_channel(node, "t", depth=10)
    node.post("/channel/seek?topic=t&channel=c&to=5")
    until_channel(node, "t", depth=5)
    client.command("RDY 10")
    assert [message.body for message in client.messages(5)] == list(numbered(10))[5:]
    client.command("RDY 0")
    client.close()
    node.post("/channel/empty?topic=t&channel=c")
    until_channel(node, "t", depth=0, in_flight_count=0)


@pytest.mark.parametrize("sync", ["write", "fsync"])
def test_a_kill_while_expired_messages_are_moved_loses_none(daemon, sync):
    """kill -9 at several moments: each message ends in the dead-letter topic, at most twice for each kill."""
    node = daemon("--topic-storage=log", f"--log-sync={sync}")
    make(node)
    set_rule(node, "t", "c", message_ttl="500ms", expired="dead-letter")
    count, rounds = 3000, 4
    for turn in range(rounds):
        publish(node, "t", *(b"%d" % number for number in range(turn * count, (turn + 1) * count)))
        wait_until(lambda: node.channel("t", "c").get("expired_count", 0) > 0)
        node.stop(signal.SIGKILL)
        node.start()
    until_channel(node, "t", depth=0, deferred_count=0, in_flight_count=0)
    total = until_topic(node, "t.dead")["depth"]
    moved: dict[int, int] = {}
    for body in dead(node, "t.dead", total):
        moved[int(body)] = moved.get(int(body), 0) + 1
    assert set(moved) == set(range(count * rounds))
    assert max(moved.values()) <= 1 + rounds


def test_a_kill_while_expired_messages_are_dropped_delivers_none(daemon):
    node = daemon("--topic-storage=log")
    make(node)
    set_rule(node, "t", "c", message_ttl="500ms")
    publish(node, "t", *numbered(5000))
    wait_until(lambda: node.channel("t", "c").get("expired_count", 0) > 0)
    node.stop(signal.SIGKILL)
    node.start()
    assert subscribe(node, "t", rdy=100).quiet(0.3)
    until_channel(node, "t", depth=0, in_flight_count=0)
