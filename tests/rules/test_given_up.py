"""DEAD: a consumer hands over messages that it cannot handle, and the node moves them to a topic of its choice."""

import json

import pytest

from tests.rules.letters import ask, lines, waiting
from tests.rules.support import dead, make, publish, set_rule, set_topic_rule, subscribe, until_channel
from tests.support.daemon import logged, wait_until
from tests.support.secure import identify


def consumer(node, topic="t", channel="c", rdy=100):
    """A consumer that may use DEAD."""
    client = node.connect()
    assert identify(client, dead_letters=True)["dead_letters"] is True
    return client.sub(topic, channel, rdy)


def give_up(client, message, topic="t.dead", reason="ValueError"):
    client.command(f"DEAD {message.id.decode()} {topic} {reason}")


def test_a_message_is_moved_with_its_origin(node):
    set_topic_rule(node, "t.dead", storage="log")
    client = consumer(node)
    publish(node, "t", b"bad", b"good")
    for message in client.messages(2):
        if message.body == b"bad":
            give_up(client, message)
        else:
            client.fin(message)
    until_channel(node, "t", dead_letter_count=1, depth=0, in_flight_count=0, deferred_count=0, requeue_count=0)
    (line,) = lines(node, "t.dead")
    origin = line["origin"]
    assert (line["body"], origin["topic"], origin["channel"]) == ("bad", "t", "c")
    assert (origin["reason"], origin["attempts"]) == ("ValueError", 1)
    assert origin["client"]["remote_address"] == f"127.0.0.1:{client.sock.getsockname()[1]}"
    assert [(group["origin"], group["reason"]) for group in ask(node, "GET", "/dead/list?topic=t.dead")["groups"]] == [
        ("t/c", "ValueError")]
    assert ask(node, "POST", "/dead/redrive?topic=t.dead&reason=ValueError")["redriven"] == 1
    again = client.message()
    assert (again.body, again.attempts) == (b"bad", 1) and not waiting(node, "t.dead")
    client.fin(again)
    until_channel(node, "t", depth=0, in_flight_count=0)
    assert node.stop() == 0
    node.start()
    assert node.channel("t", "c")["depth"] == 0


def test_a_topic_in_memory_gets_the_body(daemon):
    node = daemon("--topic-storage=memory")
    client = consumer(node)
    publish(node, "t", b"bad")
    give_up(client, client.message(), "elsewhere")
    assert dead(node, "elsewhere", 1) == [b"bad"]
    until_channel(node, "t", dead_letter_count=1, depth=0, in_flight_count=0)


def test_many_to_several_topics_and_by_a_rule(node):
    """Each batch goes to one topic; the letters of a rule go to its own."""
    for topic in ("a", "b", "by.rule"):
        set_topic_rule(node, topic, storage="log")
    set_rule(node, "t", "c", max_attempts=1, dead_letter="by.rule")
    client = consumer(node, rdy=600)
    publish(node, "t", *(b"%d" % number for number in range(600)))
    for message in client.messages(600):
        kind = int(message.body) % 3
        if kind == 2:
            client.command(f"REQ {message.id.decode()} 0")
        else:
            give_up(client, message, "ab"[kind], f"kind-{int(message.body) % 7}")
    until_channel(node, "t", dead_letter_count=600, depth=0, in_flight_count=0, deferred_count=0)
    for topic, kind in (("a", 0), ("b", 1), ("by.rule", 2)):
        letters = lines(node, topic)
        assert sorted(int(letter["body"]) for letter in letters) == list(range(kind, 600, 3))
        assert {letter["origin"]["reason"] == ("requeued" if kind == 2 else f"kind-{int(letter['body']) % 7}")
                for letter in letters} == {True}


def test_errors(node):
    plain = subscribe(node, "t", rdy=1)
    publish(node, "t", b"x")
    give_up(plain, plain.message())
    assert plain.frame() == (1, b"E_INVALID invalid command DEAD") and plain.frame() is None
    early = node.connect()
    identify(early, dead_letters=True)
    early.command("DEAD 0123456789abcdef t.dead r")
    assert early.frame() == (1, b"E_INVALID cannot DEAD in current state")
    for words, error in (("0123456789abcdef t.dead", b"E_INVALID DEAD insufficient number of params"),
                         ("12 t.dead r", b"E_INVALID invalid message ID"),
                         ("0123456789abcdef t/d r", b'E_BAD_TOPIC DEAD topic name "t/d" is not valid'),
                         ('0123456789abcdef d "r"', b'E_INVALID DEAD reason "\\"r\\"" is not valid')):
        client = consumer(node, rdy=0)
        client.command(f"DEAD {words}")
        assert client.frame() == (1, error) and client.frame() is None


def test_errors_that_leave_the_connection_open(node):
    set_rule(node, "t.dead", "c", max_attempts=1, dead_letter="t2")
    make(node, "t.dead", "c")
    client = consumer(node, "t2")
    publish(node, "t2", b"x")
    message = client.message()
    for topic in ("t2", "t.dead"):
        give_up(client, message, topic)
        assert client.frame() == (
            1, b"E_DEAD_FAILED DEAD %b failed dead letters of topic %b come back to t2" % (message.id, topic.encode()))
    give_up(client, message, "d")
    give_up(client, message, "d")
    assert client.frame() == (1, b"E_DEAD_FAILED DEAD %b failed ID not in flight" % message.id)
    until_channel(node, "t2", dead_letter_count=1, in_flight_count=0)


def test_a_topic_that_refuses(node):
    """The letters wait in the channel; they survive a stop, and their consumers get them again."""
    set_topic_rule(node, "d", storage="memory", max_depth=1)
    make(node, "d", "c")
    client = consumer(node)
    publish(node, "t", b"1", b"2")
    for message in client.messages(2):
        give_up(client, message, "d")
    until_channel(node, "t", dead_letter_count=1, deferred_count=1, in_flight_count=0)
    logged(node, "cannot be moved to topic d and wait")
    set_topic_rule(node, "d", max_depth=None)
    until_channel(node, "t", dead_letter_count=2, deferred_count=0)
    set_topic_rule(node, "d", max_depth=1)
    publish(node, "t", b"3")
    give_up(client, client.message(), "d")
    until_channel(node, "t", deferred_count=1, in_flight_count=0)
    client.close()
    assert node.stop() == 0
    node.start()
    again = consumer(node).message()
    assert (again.body, again.attempts) == (b"3", 2)


def test_an_emptied_and_a_deleted_channel(node):
    set_topic_rule(node, "d", max_depth=1, storage="memory")
    make(node, "d", "c")
    publish(node, "d", b"full")
    client = consumer(node)
    publish(node, "t", b"1", b"2")
    for message in client.messages(2):
        give_up(client, message, "d")
    until_channel(node, "t", deferred_count=2)
    node.post("/channel/empty?topic=t&channel=c")
    until_channel(node, "t", deferred_count=0, in_flight_count=0)
    publish(node, "t", b"3")
    give_up(client, client.message(), "d", "another")
    node.post("/channel/delete?topic=t&channel=c")
    set_topic_rule(node, "d", max_depth=None)
    assert node.channel("d", "c")["depth"] == 1


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_nothing_is_lost_in_logs(daemon, end):
    """Whenever the daemon ends, each message is a letter, or comes again."""
    node = daemon("--topic-storage=log")
    client = consumer(node, rdy=1000)
    publish(node, "t", *(b"%d" % number for number in range(1000)))
    client.send(b"".join(b"DEAD %b d r\n" % message.id for message in client.messages(1000)))
    wait_until(lambda: node.channel("t", "c").get("dead_letter_count", 0) > 0)
    getattr(node, end)()
    node.start()
    again = consumer(node, rdy=1000)
    left = node.channel("t", "c")
    count = left["depth"] + left["in_flight_count"] + left["deferred_count"]
    bodies = [message.body for message in again.messages(count)]
    found, offset = [], 0
    while part := node.http("GET", f"/topic/read?topic=d&offset={offset}")[1].splitlines():
        found += map(json.loads, part)
        offset = found[-1]["offset"] + 1
    assert {int(body) for body in bodies} | {int(letter["body"]) for letter in found} == set(range(1000))
