"""A clock that jumps: a deferred message in a log waits for one delay at most, wherever the clock was; ids rise."""

from __future__ import annotations

import pytest

from tests.support.clock import ShiftedClock
from tests.support.counting import consume
from tests.support.daemon import wait_until

YEARS_S = 10 * 365 * 86400


@pytest.fixture
def clock(tmp_path):
    return ShiftedClock(tmp_path)


@pytest.mark.parametrize("before_s, after_s", [(YEARS_S, 0), (0, -YEARS_S)], ids=["ahead", "back"])
def test_delays_after_the_clock_has_jumped(daemon, clock, before_s, after_s):
    """A DPUB that no consumer has received, a DPUB that one has, and a REQ."""
    clock.set(before_s)
    node = daemon("--topic-storage=log", "--max-req-timeout=1s", env=clock.environment)
    for topic in ("unseen", "seen", "requeued"):
        node.post(f"/topic/create?topic={topic}")
        node.post(f"/channel/create?topic={topic}&channel=c")
    client = node.connect().sub("seen", "c", 1)
    other = node.connect().sub("requeued", "c", 1)
    node.connect().pub("requeued", b"m")
    message = other.message()
    for topic in ("unseen", "seen"):
        node.post(f"/pub?topic={topic}&defer=900", b"m")
    other.command(f"REQ {message.id.decode()} 1000")
    wait_until(lambda: all(node.channel(topic, "c")["deferred_count"] for topic in ("unseen", "seen", "requeued")))
    client.close()
    node.kill()
    clock.set(after_s)
    for _ in range(2):          # the second start reads the files written by the first
        node.start()
        node.kill()
    node.start()
    for topic in ("unseen", "seen", "requeued"):
        assert consume(node, topic, "c", {b"m"}) == {b"m": 1}


@pytest.mark.parametrize("flag", ["--topic-storage=log", "--mem-queue-size=0"])
def test_ids_rise_when_the_clock_is_set_back(daemon, clock, flag):
    """Over kills and a stop."""
    clock.set(YEARS_S)
    node = daemon(flag, env=clock.environment)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    for number in range(4):
        node.post("/pub?topic=t", b"%d" % number)
        if number == 2:
            assert node.stop() == 0
        else:
            node.kill()
        clock.set(-number)
        node.start()
    messages = node.connect().sub("t", "c", 10).messages(4)
    assert [message.body for message in sorted(messages, key=lambda message: message.id)] == [b"0", b"1", b"2", b"3"]
