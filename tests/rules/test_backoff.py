"""requeue_delay, requeue_backoff, requeue_max and requeue_on_disconnect, in memory and in a log."""

import pytest

from tests.rules.support import publish, set_rule, subscribe, until_channel

STORAGES = ["memory", "log"]
LONG = "10m"            # longer than any test waits: such messages stay deferred


@pytest.fixture(params=STORAGES)
def node(request, daemon):
    return daemon(f"--topic-storage={request.param}", "--msg-timeout=10m", "--max-msg-timeout=15m")


def test_a_requeue_with_0_waits_as_the_rule_says(node):
    set_rule(node, "t", "c", requeue_delay=LONG)
    client = subscribe(node, "t")
    publish(node, "t", b"poison")
    message = client.message()
    client.command(f"REQ {message.id.decode()} 0")
    stats = until_channel(node, "t", requeue_count=1, deferred_count=1, depth=0, in_flight_count=0)
    assert stats["rules"] == {"requeue_delay": "10m0s"}
    assert client.quiet(0.3)


def test_a_delay_of_the_client_counts_rather_than_the_rule(node):
    set_rule(node, "t", "c", requeue_delay=LONG)
    client = subscribe(node, "t")
    publish(node, "t", b"x")
    client.command(f"REQ {client.message().id.decode()} 1")
    assert client.message().attempts == 2


def test_a_time_out_backs_off(node):
    set_rule(node, "t", "c", requeue_delay=LONG)
    client = subscribe(node, "t", msg_timeout=1000)
    publish(node, "t", b"x")
    client.message()
    until_channel(node, "t", timeout_count=1, deferred_count=1, in_flight_count=0, requeue_count=0)


def test_the_delay_grows_up_to_the_maximum(node):
    """1 ms, then 600 s: the second failure is the one that stays deferred. With requeue_max it does not."""
    set_rule(node, "t", "c", requeue_delay="1ms", requeue_backoff=1000, requeue_max="600s")
    client = subscribe(node, "t")
    publish(node, "t", b"x")
    for attempts in (1, 2, 3):
        message = client.message()
        assert message.attempts == attempts
        client.command(f"REQ {message.id.decode()} 0")
    until_channel(node, "t", deferred_count=1, requeue_count=3, in_flight_count=0)
    set_rule(node, "u", "c", requeue_delay="1ms", requeue_backoff=1000, requeue_max="2ms")
    client = subscribe(node, "u")
    publish(node, "u", b"x")
    for attempts in range(1, 70):
        message = client.message()
        assert message.attempts == attempts
        client.command(f"REQ {message.id.decode()} 0")


def test_without_a_rule_a_requeue_is_delivered_at_once(node):
    client = subscribe(node, "t")
    publish(node, "t", b"x")
    client.command(f"REQ {client.message().id.decode()} 0")
    assert client.message().attempts == 2
    assert "rules" not in node.channel("t", "c")


def test_a_rule_that_is_taken_back_no_longer_holds(node):
    set_rule(node, "t", "c", requeue_delay=LONG)
    client = subscribe(node, "t")
    set_rule(node, "t", "c", requeue_delay=None)
    publish(node, "t", b"x")
    client.command(f"REQ {client.message().id.decode()} 0")
    assert client.message().attempts == 2


def test_a_lost_connection_returns_its_messages_at_once(node):
    set_rule(node, "t", "c", requeue_on_disconnect=True, requeue_delay=LONG)
    lost, other = subscribe(node, "t", rdy=500), subscribe(node, "t", rdy=0)
    publish(node, "t", *(b"%d" % number for number in range(400)))
    first = lost.messages(400)
    lost.close()
    until_channel(node, "t", depth=400, in_flight_count=0, requeue_count=400, timeout_count=0, deferred_count=0)
    other.command("RDY 500")
    again = other.messages(400, finish=True)
    assert {message.id for message in again} == {message.id for message in first}
    assert {message.attempts for message in again} == {2}
    until_channel(node, "t", depth=0, in_flight_count=0)


def test_only_the_messages_of_the_lost_connection_come_back(node):
    set_rule(node, "t", "c", requeue_on_disconnect=True)
    clients = [subscribe(node, "t", rdy=100) for _ in range(5)]
    publish(node, "t", *(b"%d" % number for number in range(500)))
    received = [client.messages(100) for client in clients]
    for client in clients[1:4]:
        client.close()
    until_channel(node, "t", in_flight_count=200, depth=300, requeue_count=300)
    for client, messages in ((clients[0], received[0]), (clients[4], received[4])):
        for message in messages:
            client.fin(message)
    lost = {message.id for messages in received[1:4] for message in messages}
    back = clients[0].messages(100) + clients[4].messages(100)
    assert {message.id for message in back} < lost
    assert clients[0].quiet(0.1) and clients[4].quiet(0.1)


def test_without_the_rule_messages_stay_in_flight(node):
    client = subscribe(node, "t")
    publish(node, "t", b"x")
    client.message()
    client.close()
    stats = until_channel(node, "t", client_count=0)
    assert stats["in_flight_count"] == 1 and stats["depth"] == 0


def test_emptying_a_channel_forgets_lost_connections(node):
    set_rule(node, "t", "c", requeue_on_disconnect=True)
    client = subscribe(node, "t", rdy=100)
    publish(node, "t", *(b"%d" % number for number in range(100)))
    client.messages(100)
    client.close()
    node.post("/channel/empty?topic=t&channel=c")
    until_channel(node, "t", depth=0, in_flight_count=0, client_count=0)
    other = subscribe(node, "t")
    publish(node, "t", b"new")
    assert other.message().body == b"new"


def test_a_delay_survives_a_restart(node):
    set_rule(node, "t", "c", requeue_delay=LONG)
    client = subscribe(node, "t")
    publish(node, "t", b"x")
    client.command(f"REQ {client.message().id.decode()} 0")
    until_channel(node, "t", deferred_count=1)
    node.restart()
    stats = until_channel(node, "t", deferred_count=1, depth=0)
    assert stats["rules"] == {"requeue_delay": "10m0s"}
