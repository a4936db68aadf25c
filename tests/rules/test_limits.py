"""max_in_flight and rate, in memory and in a log."""

import time

import pytest

from tests.rules.support import numbered, publish, set_rule, subscribe, until_channel


def test_the_limit_is_over_all_consumers(node):
    set_rule(node, "t", "c", max_in_flight=5)
    clients = [subscribe(node, "t", rdy=100) for _ in range(3)]
    publish(node, "t", *numbered(20))
    until_channel(node, "t", in_flight_count=5, depth=15)
    finished = set()
    while len(finished) < 20:
        for client in clients:
            try:
                message = client.message(0.05)
            except TimeoutError:
                continue
            assert node.channel("t", "c")["in_flight_count"] <= 5
            finished.add(message.body)
            client.fin(message)
    until_channel(node, "t", in_flight_count=0, depth=0)


def test_one_message_at_once_wakes_the_other_consumer(node):
    """The consumer that finishes has no RDY left; the next message goes to another one."""
    set_rule(node, "t", "c", max_in_flight=1)
    first, second = subscribe(node, "t"), None
    publish(node, "t", b"a", b"b", b"c")
    message = first.message()
    second = subscribe(node, "t", rdy=10)
    first.command("RDY 0")
    assert second.quiet(0.2)
    first.fin(message)
    message = second.message()
    assert second.quiet(0.1)
    second.command(f"REQ {message.id.decode()} 0")
    again = second.message()
    assert second.quiet(0.1)
    second.fin(again)
    second.fin(second.message())
    until_channel(node, "t", in_flight_count=0, depth=0)


def test_a_time_out_makes_room(node):
    set_rule(node, "t", "c", max_in_flight=1)
    sleepy, other = subscribe(node, "t", msg_timeout=1000), None
    publish(node, "t", b"a", b"b")
    assert sleepy.message().attempts == 1
    sleepy.command("RDY 0")
    other = subscribe(node, "t", rdy=10)
    got = [other.message(), None]
    other.fin(got[0])
    got[1] = other.message()
    assert {message.body for message in got} == {b"a", b"b"}


def test_a_lost_connection_makes_room_with_both_rules(node):
    set_rule(node, "t", "c", max_in_flight=3, requeue_on_disconnect=True)
    lost = subscribe(node, "t", rdy=10)
    publish(node, "t", *numbered(6))
    lost.messages(3)
    other = subscribe(node, "t", rdy=10)
    lost.close()
    assert {message.body for message in other.messages(6, finish=True)} == set(numbered(6))


def test_a_changed_limit_holds_at_once(node):
    set_rule(node, "t", "c", max_in_flight=1)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", *numbered(10))
    until_channel(node, "t", in_flight_count=1)
    set_rule(node, "t", "c", max_in_flight=4)
    until_channel(node, "t", in_flight_count=4)
    set_rule(node, "t", "c", max_in_flight=2)
    messages = client.messages(4)
    for message in messages[:2]:
        client.fin(message)
    until_channel(node, "t", in_flight_count=2, depth=6)
    set_rule(node, "t", "c", max_in_flight=None)
    until_channel(node, "t", in_flight_count=8, depth=0)


def test_emptying_and_pausing_with_a_limit(node):
    set_rule(node, "t", "c", max_in_flight=2)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", *numbered(10))
    client.messages(2)
    node.post("/channel/empty?topic=t&channel=c")
    publish(node, "t", b"x", b"y", b"z")
    assert {message.body for message in client.messages(2)} <= {b"x", b"y", b"z"}
    node.post("/channel/pause?topic=t&channel=c")
    node.post("/channel/unpause?topic=t&channel=c")
    assert client.quiet(0.2)
    until_channel(node, "t", in_flight_count=2, depth=1)


def test_the_rate_is_an_upper_bound(node):
    """Between the first and the last of 41 messages at 20 a second and bursts of one pass 2 s at least."""
    set_rule(node, "t", "c", rate=20)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", *numbered(41))
    client.fin(client.message())
    began = time.monotonic()
    client.messages(40, finish=True)
    assert time.monotonic() - began > 1.9


def test_a_burst_goes_at_once_and_the_next_waits(node):
    set_rule(node, "t", "c", rate=0.01, rate_burst=10)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", *numbered(15))
    client.messages(10, finish=True)
    until_channel(node, "t", in_flight_count=0, depth=5)
    assert client.quiet(0.3)
    set_rule(node, "t", "c", rate=None)
    client.messages(5, finish=True)


def test_a_fast_rate_delivers_everything(node):
    set_rule(node, "t", "c", rate=100_000)
    client = subscribe(node, "t", rdy=2000)
    publish(node, "t", *numbered(5000))
    assert len({message.body for message in client.messages(5000, finish=True)}) == 5000
    until_channel(node, "t", in_flight_count=0, depth=0)


@pytest.mark.parametrize("rate", [1e-300, 1e-12, 1e9])
def test_extreme_rates(node, rate):
    set_rule(node, "t", "c", rate=rate, rate_burst=10**6)
    client = subscribe(node, "t", rdy=10)
    publish(node, "t", *numbered(10))
    client.messages(10, finish=True)
