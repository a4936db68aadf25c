"""nsqc relay: at least once, to any target that works."""

import signal

import pytest

from nsqc.tools.relay.engine import Filter
from tests.support import nested
from tests.support.daemon import wait_until
from tests.tools.conftest import taken


@pytest.fixture
def target(daemon):
    """A second daemon."""
    return daemon()


def prepared(node, topic: str) -> None:
    node.post(f"/topic/create?topic={topic}")
    node.post(f"/channel/create?topic={topic}&channel=c")


def test_bodies_arrive_as_they_are(tools, target):
    topic = tools.topic("nsq_to_nsq")
    prepared(target, topic)
    bodies = [b"%d" % number + bytes(range(number % 256)) for number in range(3000)]
    tools.publish(topic, *bodies)
    running = tools.start("relay", "--topic", topic, "--to", f"127.0.0.1:{target.tcp_port}")
    tools.drained(topic, "nsq_to_nsq")
    assert running.stop(signal.SIGTERM) == 0
    assert running.err == ""
    assert sorted(taken(target, topic, "c")) == sorted(bodies)


def test_a_target_that_dies_and_one_that_never_lived(tools, target, daemon):
    topic = tools.topic("nsq_to_nsq")
    other = daemon()
    for node in (target, other):
        prepared(node, topic)
    running = tools.start("relay", "--topic", topic, "--max-in-flight", "50", "--to", "127.0.0.1:1",
                          "--to", f"127.0.0.1:{target.tcp_port}", "--to", f"127.0.0.1:{other.tcp_port}")
    running.says("127.0.0.1:1: Connection refused; retrying")
    bodies = [b"%d" % number for number in range(4000)]
    tools.publish(topic, *bodies)
    wait_until(lambda: target.channel(topic, "c")["depth"] and other.channel(topic, "c")["depth"])
    first = taken(target, topic, "c")
    target.kill()
    tools.publish(topic, *[b"more %d" % number for number in range(500)])
    tools.drained(topic, "nsq_to_nsq")
    assert running.stop() == 130
    arrived = set(first) | set(taken(other, topic, "c"))
    # Messages acknowledged by the dead one after that check are on its disk, or lost with its memory: not the tool's
    # fault.
    assert {b"more %d" % number for number in range(500)} <= arrived


@pytest.mark.long
def test_nodes_on_both_sides_are_killed(tools, daemon):
    """All of them keep messages on disk: none is lost, and some come twice."""
    source, *targets = nodes = [daemon("--mem-queue-size=0", "--msg-timeout=1s") for _ in range(3)]
    for node in nodes:
        prepared(node, "t")
    to = [word for node in targets for word in ("--to", f"127.0.0.1:{node.tcp_port}")]
    running = tools.start("relay", "--topic", "t", "--channel", "c", "--max-in-flight", "100", "--nsqd", f"127.0.0.1:{source.tcp_port}",
                          "--http", f"127.0.0.1:{source.http_port}", *to, nodes=False)
    bodies = []
    for number, node in enumerate([source, *targets, source, *targets]):
        more = [b"%d-%d" % (number, each) for each in range(1500)]
        source.connect().pub("t", *more)
        bodies += more
        wait_until(lambda: any(each.channel("t", "c")["depth"] for each in targets))
        node.kill()
        node.start(f"--tcp-address=127.0.0.1:{node.tcp_port}", f"--http-address=127.0.0.1:{node.http_port}")

    def is_through() -> bool:
        found = source.channel("t", "c")
        return not (found["depth"] or found["in_flight_count"] or found["deferred_count"])

    wait_until(is_through)
    assert running.stop(signal.SIGTERM) == 0
    arrived = [body for node in targets for body in taken(node, "t", "c")]
    assert set(arrived) == set(bodies)


def test_without_any_target_nothing_is_taken(tools):
    topic = tools.topic("nsq_to_nsq")
    tools.publish(topic, b"a", b"b")
    running = tools.start("relay", "--topic", topic, "--to", "127.0.0.1:1").says("retrying")
    wait_until(lambda: tools.node.channel(topic, "nsq_to_nsq")["requeue_count"] >= 2)
    assert tools.node.channel(topic, "nsq_to_nsq")["depth"] == 2
    assert running.stop() == 130
    assert sorted(tools.taken(topic, "nsq_to_nsq")) == [b"a", b"b"]


def test_what_a_target_refuses_is_kept(tools, daemon):
    small = daemon("--max-msg-size=1000")
    topic = tools.topic("nsq_to_nsq")
    prepared(small, topic)
    tools.publish(topic, b"a", b"x" * 2000, b"b", b"c")
    running = tools.start("relay", "--topic", topic, "--to", f"127.0.0.1:{small.tcp_port}")
    running.says("1 message not relayed, retrying in 90 s")
    wait_until(lambda: tools.node.channel(topic, "nsq_to_nsq")["deferred_count"] == 1)
    wait_until(lambda: small.channel(topic, "c")["depth"] == 3)
    assert running.stop() == 130
    assert sorted(taken(small, topic, "c")) == [b"a", b"b", b"c"]


def test_fields_of_json(tools):
    topic, other = tools.topic("nsq_to_nsq"), tools.topic("c")
    tools.publish(topic, b'{"a":1, "b":12345678901234567890, "c": "<&>"}', b'{"a":2}', b"text", b'{"a":"1","c":[1.50]}')
    running = tools.start("relay", "--topic", topic, "--to", tools.tcp, "--to-topic", other, "--require-json-field", "a",
                          "--require-json-value", "1", "--whitelist-json-field", "c", "--whitelist-json-field", "b")
    tools.drained(topic, "nsq_to_nsq")
    assert running.stop(signal.SIGTERM) == 0
    assert running.err == "nsqc relay: 2 messages relayed, 2 filtered out\n"
    assert sorted(tools.taken(other, "c")) == [b'{"b":12345678901234567890,"c":"<&>"}', b'{"c":[1.50]}']


@pytest.mark.parametrize("body, passes", [
    (b'{"f":1}', True), (b'{"f":1.0}', True), (b'{"f":"1"}', True), (b'{"f":"1.0"}', False), (b'{"f":true}', False), (b'{"f":2}', False),
    (b'{"f":null}', False), (b'{"g":1}', False), (b"[1]", False), (b"\xff", False), (b"", False), (b"[" * 100_000, False), (b'{"f":1', False),
    (b'{"f":"\xff"}', False), (b'{"f":%b}' % nested.levels(900), False)])
def test_a_value_matches(body, passes):
    assert (Filter("f", "1", frozenset()).apply(body) == body) is passes


@pytest.mark.parametrize("words, code, text", [
    ((), 2, "--to is required"), (("--to", "localhost"), 2, "its port is missing"),
    (("--to", "127.0.0.1:1", "--require-json-value", "1"), 2, "--require-json-value needs --require-json-field")])
def test_what_cannot_begin(inside, tools, words, code, text):
    done = inside("relay", "--topic", "x", *words, *tools.nodes)
    assert done.returncode == code and text in done.stderr


def test_a_loop_is_refused(tools):
    done = tools.run("relay", "--topic", "x", "--to", tools.tcp)
    assert done.returncode == 2 and "would receive its own messages" in done.stderr.decode()
