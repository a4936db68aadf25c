"""ordered: one message in flight, in the order of publishing, despite any failure; in memory and in logs."""

import signal

import pytest

from tests.rules.support import publish, set_rule, subscribe, until_channel


def bodies(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def ordered(node, **more: object) -> None:
    set_rule(node, "t", "c", ordered=True, **more)


def test_one_at_a_time_in_order(node):
    ordered(node)
    clients = [subscribe(node, "t", rdy=100) for _ in range(3)]
    publish(node, "t", *bodies(1))
    seen = []
    publish(node, "t", *bodies(29, 1))
    while len(seen) < 30:
        for client in clients:
            try:
                message = client.message(0.02)
            except TimeoutError:
                continue
            seen.append(message.body)
            assert node.channel("t", "c")["in_flight_count"] == 1
            client.fin(message)
    assert seen == bodies(30)


def test_a_requeued_message_is_the_next(node):
    ordered(node)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", *bodies(20))
    for body in bodies(20):
        for attempts in (1, 2, 3):
            message = client.message()
            assert (message.body, message.attempts) == (body, attempts)
            if attempts < 3:
                client.command(f"REQ {message.id.decode()} 0")
        client.fin(message)
    until_channel(node, "t", depth=0, in_flight_count=0, requeue_count=40)


def test_the_channel_waits_with_a_delayed_message(node):
    ordered(node)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", b"a", b"b")
    client.command(f"REQ {client.message().id.decode()} 600000")
    until_channel(node, "t", deferred_count=1, depth=1, in_flight_count=0)
    publish(node, "t", b"c")
    assert client.quiet(0.2)
    node.post("/channel/empty?topic=t&channel=c")
    until_channel(node, "t", deferred_count=0, depth=0)
    publish(node, "t", b"d")
    assert client.message().body == b"d"


def test_a_short_delay_keeps_the_order(node):
    ordered(node, requeue_delay="20ms")
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", b"a", b"b", b"c")
    for body in (b"a", b"b", b"c"):
        message = client.message()
        assert message.body == body
        client.command(f"REQ {message.id.decode()} 0")
        message = client.message()
        assert (message.body, message.attempts) == (body, 2)
        client.fin(message)


def test_time_outs_and_lost_connections_keep_the_order(node):
    ordered(node, requeue_on_disconnect=True)
    client = subscribe(node, "t", rdy=100, msg_timeout=1000)
    publish(node, "t", *bodies(3))
    assert client.message().body == b"0"
    message = client.message()
    assert (message.body, message.attempts) == (b"0", 2)
    client.close()
    other = subscribe(node, "t", rdy=100)
    assert [message.body for message in other.messages(3, finish=True)] == bodies(3)


def test_a_message_waits_for_a_consumer_in_front(node):
    ordered(node)
    client = subscribe(node, "t", rdy=1)
    publish(node, "t", b"a", b"b")
    message = client.message()
    client.command("RDY 0")
    client.command(f"REQ {message.id.decode()} 0")
    until_channel(node, "t", depth=2, in_flight_count=0, deferred_count=0)
    publish(node, "t", b"c")
    node.post("/channel/pause?topic=t&channel=c")
    other = subscribe(node, "t", rdy=10)
    assert other.quiet(0.1)
    node.post("/channel/unpause?topic=t&channel=c")
    assert [message.body for message in other.messages(3, finish=True)] == [b"a", b"b", b"c"]


def test_a_poison_message_does_not_stop_the_channel(node):
    ordered(node, max_attempts=3)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", b"poison", b"a", b"b")
    for _ in range(3):
        message = client.message()
        assert message.body == b"poison"
        client.command(f"REQ {message.id.decode()} 0")
    assert [message.body for message in client.messages(2, finish=True)] == [b"a", b"b"]
    until_channel(node, "t", dead_letter_count=1, depth=0, in_flight_count=0)


def test_a_rule_that_is_taken_back_lets_all_out(node):
    ordered(node)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", b"a", b"b", b"c")
    client.command(f"REQ {client.message().id.decode()} 600000")
    until_channel(node, "t", deferred_count=1, depth=2)
    set_rule(node, "t", "c", ordered=None)
    assert {message.body for message in client.messages(3, finish=True)} == {b"a", b"b", b"c"}
    publish(node, "t", b"d")
    assert client.message().body == b"d"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_log_keeps_the_order_over_a_restart(daemon, number):
    node = daemon("--topic-storage=log")
    ordered(node)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", *bodies(10))
    client.messages(1, finish=True)
    message = client.message()
    client.command(f"REQ {message.id.decode()} 600000")
    until_channel(node, "t", deferred_count=1, depth=8)
    node.http("POST", "/channel/pause?topic=t&channel=c")
    node.stop(number)
    node.start()
    node.post("/channel/unpause?topic=t&channel=c")
    client = subscribe(node, "t", rdy=100)
    messages = client.messages(9, finish=True)
    expected = bodies(9, 1)
    if number == signal.SIGKILL and messages[0].body == b"0":   # its FIN was not in the journal yet
        messages, expected = [*messages, client.message()], bodies(10)
    assert [one.body for one in messages] == expected


def test_a_stop_in_memory_loses_nothing(daemon):
    node = daemon("--topic-storage=memory")
    ordered(node)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", *bodies(10))
    client.command(f"REQ {client.message().id.decode()} 600000")
    until_channel(node, "t", deferred_count=1, depth=9)
    node.restart()
    client = subscribe(node, "t", rdy=100)
    assert {message.body for message in client.messages(10, finish=True)} == set(bodies(10))


def test_a_seek_goes_back_from_in_front(daemon):
    node = daemon("--topic-storage=log", "--log-retain-time=1h")
    ordered(node)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", *bodies(3))
    client.messages(1, finish=True)
    client.command(f"REQ {client.message().id.decode()} 600000")
    until_channel(node, "t", deferred_count=1, depth=1)
    node.post("/channel/seek?topic=t&channel=c&to=beginning")
    assert [message.body for message in client.messages(3, finish=True)] == bodies(3)
