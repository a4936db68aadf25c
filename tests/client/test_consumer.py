"""Consuming from several daemons that come and go."""

import contextlib
import threading

import pytest

from nsqc.client import BadName, Connection, Consumer, LookupFailed, Producer, Refused
from tests.client.conftest import address
from tests.support import nested
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import kept


def take(consumer, count: int) -> list[bytes]:
    found = []
    while len(found) < count:
        message = consumer.get(WAIT_SECONDS)
        assert message is not None, f"{len(found)} of {count} came"
        found.append(message.body)
        message.finish()
    return found


def drained(node, count: int, **options) -> list[bytes]:
    """The bodies of all messages of topic t, in order of their bytes."""
    with Consumer("t", "drained", address(node), **{"max_in_flight": 100, **options}) as consumer:
        found = sorted(take(consumer, count))
        assert consumer.get(0.05) is None
    return found


def publish(node, *bodies: bytes) -> None:
    with Producer(address(node)) as producer:
        producer.publish_many("t", bodies)


@pytest.mark.parametrize("in_flight,connections", [(1, 1), (2, 2), (100, 1), (1, 2)])
def test_two_daemons(daemon, monkeypatch, in_flight, connections):
    monkeypatch.setattr("nsqc.client.peers.ROTATE_SECONDS", 0.2)
    nodes = [daemon(), daemon()]
    for node in nodes:
        publish(node, *(b"%d" % n for n in range(50)))
    with Consumer("t", "c", [address(node) for node in nodes], max_in_flight=in_flight, connections=connections) as consumer:
        assert sorted(take(consumer, 100)) == sorted([b"%d" % n for n in range(50)] * 2)
        ready = [client["ready_count"] for node in nodes for client in node.channel("t", "c")["clients"]]
        assert len(ready) == 2 * connections and sum(ready) <= in_flight
        assert consumer.get(0.05) is None
    for node in nodes:
        wait_until(lambda node=node: not node.channel("t", "c")["clients"])


def test_no_nsqd_waits_for_another(daemon):
    """By default each connection has RDY; with less, all messages still arrive."""
    nodes = [daemon() for _ in range(5)]
    for node in nodes:
        node.post("/topic/create?topic=t")
        for channel in ("default", "one"):
            node.post(f"/channel/create?topic=t&channel={channel}")
        publish(node, b"%d" % node.tcp_port)
    for channel, in_flight in (("default", None), ("one", 1)):
        with Consumer("t", channel, [address(node) for node in nodes], max_in_flight=in_flight) as consumer:
            assert sorted(take(consumer, 5)) == sorted(b"%d" % node.tcp_port for node in nodes)
            wait_until(lambda: consumer.get(0.01) is None and all(peer.is_connected for peer in consumer.stats().connections))
            assert sum(peer.ready for peer in consumer.stats().connections) == (in_flight or 5)


def test_a_daemon_that_comes_back(daemon):
    node = daemon(kept())
    with Consumer("t", "c", address(node), max_in_flight=10, backoff=0.05) as consumer:
        publish(node, b"before")
        assert take(consumer, 1) == [b"before"]
        wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
        node.restart()
        publish(node, b"after")
        assert take(consumer, 1) == [b"after"]


def test_closing_hands_back_what_was_not_answered(daemon):
    node = daemon()
    publish(node, *[b"x"] * 20)
    consumer = Consumer("t", "c", address(node), max_in_flight=10)
    held = [consumer.get(WAIT_SECONDS) for _ in range(3)]
    held[0].finish()
    held[1].requeue(0)
    consumer.close()
    assert consumer.get(1) is None
    assert list(consumer) == []
    found = node.channel("t", "c")
    assert (found["depth"], found["in_flight_count"]) == (19, 0)


def test_iterating_ends_when_another_thread_closes(daemon):
    node = daemon()
    publish(node, b"x")
    seen = []
    consumer = Consumer("t", "c", address(node))
    for message in consumer:
        message.finish()
        seen.append(message.body)
        consumer.close()
    assert seen == [b"x"]


def test_by_lookup(daemon, lookupd):
    one, two = daemon(), daemon()
    lookupd.ports = [one.tcp_port]
    publish(one, b"a")
    publish(two, b"b")
    with Consumer("t", "c", nsqlookupd=[lookupd.address], poll_interval=0.2, max_in_flight=5) as consumer:
        assert take(consumer, 1) == [b"a"]
        lookupd.ports = [two.tcp_port]
        assert take(consumer, 1) == [b"b"]
        lookupd.body = nested.OBJECT
        asked = len(lookupd.asked)
        wait_until(lambda: consumer.get(0.05) is None and len(lookupd.asked) > asked + 1)
        lookupd.status = 500
        asked = len(lookupd.asked)
        publish(one, b"c")
        assert take(consumer, 1) == [b"c"]
        wait_until(lambda: consumer.get(0.05) is None and len(lookupd.asked) > asked)
    with pytest.raises(LookupFailed), Consumer("t", "c", nsqlookupd=[lookupd.address]) as consumer:
        consumer.get(1)


def test_what_cannot_work(daemon):
    for wrong, error in (({}, ValueError), ({"nsqd": ["a:1"], "max_in_flight": 0}, ValueError)):
        with pytest.raises(error):
            Consumer("t", "c", **wrong)
    with pytest.raises(BadName):
        Consumer("t", "bad channel", ["a:1"])
    node = daemon("--max-channel-consumers=1")
    first = node.connect().sub("t", "c")
    with pytest.raises(Refused, match="E_SUB_FAILED"), Consumer("t", "c", address(node)) as consumer:
        consumer.get(WAIT_SECONDS)
    first.close()


def test_many_threads_many_consumers(daemon):
    node = daemon()
    publish(node, *(b"%d" % n for n in range(2000)))
    found: list[bytes] = []

    def run():
        with Consumer("t", "c", address(node), max_in_flight=50) as consumer:
            while len(found) < 2000:
                if message := consumer.get(0.1):
                    message.finish()
                    found.append(message.body)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(b"%d" % n for n in range(2000))


def test_with_message(daemon):
    node = daemon()
    publish(node, b"good", b"bad", b"answered", b"touched")
    with Consumer("t", "c", address(node)) as consumer:
        found = []
        while len(found) < 7:
            message = consumer.get(WAIT_SECONDS)
            with contextlib.suppress(ZeroDivisionError), message as same:
                assert same is message
                found.append((message.body, message.attempts))
                if message.body == b"touched":
                    message.touch()
                elif message.attempts == 1 and message.body != b"good":
                    if message.body == b"answered":
                        message.requeue(1)
                    1 / 0  # noqa: B018
                if message.body == b"answered":
                    message.finish()
                    1 / 0  # noqa: B018
            assert message.answered
            if message.body == b"good":
                found.append(message.body)
        assert sorted(found, key=str) == sorted([(b"good", 1), b"good", (b"bad", 1), (b"bad", 2), (b"answered", 1), (b"answered", 2),
                                                 (b"touched", 1)], key=str)
        wait_until(lambda: consumer.get(0.01) is None and node.channel("t", "c")["in_flight_count"] == 0)
    assert (node.channel("t", "c")["depth"], node.channel("t", "c")["requeue_count"]) == (0, 2)


def test_with_message_of_a_connection_that_is_gone(daemon):
    node = daemon()
    publish(node, b"x", b"y")
    with Consumer("t", "c", address(node), max_in_flight=2) as consumer:
        first, second = consumer.get(WAIT_SECONDS), consumer.get(WAIT_SECONDS)
        node.kill()
        consumer.get(0.05)
        with pytest.raises(ZeroDivisionError), first:   # not the lost connection's error
            1 / 0  # noqa: B018
        with second:
            pass                                        # delivered again; the worker that finished it does not care
        for message in (first, second):
            message.touch()
            message.requeue()


def test_with_batch(daemon):
    node = daemon()
    publish(node, *(b"%d" % n for n in range(100)))
    with Connection(address(node)) as connection:
        connection.subscribe("t", "c")
        connection.ready(100)
        with pytest.raises(ZeroDivisionError), connection.receive_batch(WAIT_SECONDS) as batch:
            count = len(batch)
            1 / 0  # noqa: B018
        assert batch.answered and count == batch.count
        done, again = 0, 0
        while done < 100:
            with connection.receive_batch(WAIT_SECONDS) as batch:
                done += len(batch)
                again += sum(memoryview(batch.attempts).cast("B").cast("i")) - len(batch)
        assert again == count
        wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
        publish(node, b"x", b"y")
        with connection.receive_batch(WAIT_SECONDS) as batch:
            batch.requeue(60_000)
        assert connection.receive_batch(0) is None or batch.count == 1
    wait_until(lambda: node.channel("t", "c")["deferred_count"] == batch.count)


def test_ids_of_late_answers_do_not_pile_up(daemon):
    node = daemon()
    with Consumer("t", "c", address(node)) as consumer:
        for number in range(5):
            publish(node, b"%d" % number)
            message = consumer.get(WAIT_SECONDS)
            message.connection.finish_ids(b"%016x" % number)    # not in flight
            message.finish()
        publish(node, b"last")
        message = consumer.get(WAIT_SECONDS)
        assert len(message.connection.failed_ids) <= 1


def test_connections_are_checked_about_once_for_each_message(daemon, monkeypatch):
    """With one message in flight, every check except the one that finds it costs as much as the message."""
    node, pulls = daemon(), []
    pull = Connection.pull
    monkeypatch.setattr(Connection, "pull", lambda self: pulls.append(1) or pull(self))
    count = 200
    with Producer(address(node)) as producer:
        producer.publish_many("t", [b"x"] * count)
    with Consumer("t", "c", address(node), max_in_flight=1) as consumer:
        for _ in range(count):
            consumer.get(WAIT_SECONDS).finish()
        assert len(pulls) < 1.5 * count
        # A call that does not wait reads as well.
        assert consumer.get(0) is None
