"""message_ttl and retain_time when the wall clock is set, and messages from when it was wrong."""

from __future__ import annotations

import pytest

from tests.rules.letters import ask
from tests.rules.support import make, numbered, publish, set_rule, set_topic_rule, subscribe, until_channel, until_topic
from tests.support.clock import ShiftedClock
from tests.support.daemon import wait_until

DAY_S = 86400
WARNING = "messages from up to"


@pytest.fixture
def clock(tmp_path):
    return ShiftedClock(tmp_path)


@pytest.fixture(params=["memory", "log"])
def node(request, daemon, clock):
    return daemon(f"--topic-storage={request.param}", env=clock.environment)


def test_a_step_forward_expires_messages(node, clock):
    make(node)
    set_rule(node, "t", "c", message_ttl="1h")
    publish(node, "t", *numbered(5))
    until_channel(node, "t", depth=5)
    clock.set(2 * 3600)
    until_channel(node, "t", depth=0, expired_count=5)
    clock.set(3 * 3600)         # once more
    publish(node, "t", b"x")
    clock.set(5 * 3600)
    until_channel(node, "t", depth=0, expired_count=6)


def test_a_step_forward_expires_deferred_messages(daemon, clock):
    node = daemon(env=clock.environment)
    make(node)
    set_rule(node, "t", "c", message_ttl="1h")
    for number in range(20):
        node.post(f"/pub?topic=t&defer={3000 + number}000", b"x")
    until_channel(node, "t", deferred_count=20)
    clock.set(2 * 3600)
    until_channel(node, "t", deferred_count=0, expired_count=20)


def test_a_message_from_the_future_stops_no_other(node, clock):
    """At the head of a queue, from before the clock was set back, and from an earlier run."""
    make(node)
    clock.set(DAY_S)
    publish(node, "t", b"future")
    clock.set(0)
    set_rule(node, "t", "c", message_ttl="2s")
    publish(node, "t", *numbered(5))
    until_channel(node, "t", depth=0, expired_count=6)
    set_rule(node, "t", "c", message_ttl=None)
    clock.set(DAY_S)
    publish(node, "t", b"future")
    assert node.stop() == 0
    clock.set(0)
    node.start()
    publish(node, "t", *numbered(5))
    until_channel(node, "t", depth=6)
    set_rule(node, "t", "c", message_ttl="2s")
    until_channel(node, "t", depth=0, expired_count=6)
    publish(node, "t", b"fresh")
    set_rule(node, "t", "c", message_ttl="1h")
    assert subscribe(node, "t").message().body == b"fresh"
    wait_until(lambda: node.log.count(WARNING) == 2)        # once for each run


def test_a_message_from_the_future_lives_for_its_time(node, clock):
    make(node)
    set_rule(node, "t", "c", message_ttl="1h")
    clock.set(DAY_S)
    publish(node, "t", b"future")
    clock.set(0)
    wait_until(lambda: WARNING in node.log or not publish(node, "t", b"x"))
    client = subscribe(node, "t")
    assert client.message().body == b"future"
    assert "expired_count" not in node.channel("t", "c")


def test_the_topics_own_queue(daemon, clock):
    node = daemon(env=clock.environment)
    clock.set(DAY_S)
    node.post("/topic/create?topic=t")
    publish(node, "t", b"future")
    clock.set(0)
    set_topic_rule(node, "t", message_ttl="2s")
    publish(node, "t", *numbered(5))
    until_topic(node, "t", depth=0, expired_count=6)


def test_segments_of_a_fast_clock_are_removed(daemon, clock):
    node = daemon("--topic-storage=log", "--max-bytes-per-file=4000", env=clock.environment)
    set_topic_rule(node, "t", retain_time="2s")
    make(node)
    clock.set(DAY_S)
    publish(node, "t", b"x" * 5000)
    publish(node, "t", b"x" * 5000)
    clock.set(0)
    for _ in range(3):
        publish(node, "t", b"y" * 5000)
    client = subscribe(node, "t", rdy=10)
    client.messages(5, finish=True)
    wait_until(lambda: ask(node, "GET", "/topic/log?topic=t")["first_offset"] >= 3)
    wait_until(lambda: WARNING in node.log)
