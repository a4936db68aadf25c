"""A producer's calls when an nsqd hangs, is closed, or is one of many: the same in both clients."""

import asyncio
import inspect
import threading

import pytest

from nsqc.client import Closed, Producer, PublishFailed, aio
from tests.client.conftest import address, runner_of
from tests.client.faults import Script, serve
from tests.client.test_consumer import drained
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import kept

LONG = 3 * WAIT_SECONDS     # long enough to count as blocked


class Plain:
    """An aio.Producer with the interface of a blocking one."""

    def __init__(self, *arguments, **options):
        self._runner = asyncio.Runner()
        self.inner = self._runner.run(self._make(arguments, options))

    @staticmethod
    async def _make(arguments, options):
        return aio.Producer(*arguments, **options)

    def __getattr__(self, name):
        method = getattr(self.inner, name)
        if not inspect.iscoroutinefunction(method):
            return method
        return lambda *arguments, **options: self._runner.run(method(*arguments, **options))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._runner.run(self.inner.close())
        self._runner.close()


@pytest.fixture(params=[Producer, Plain], ids=["blocking", "asyncio"])
def make(request):
    return request.param


@pytest.fixture
def script():
    running = []

    def start(*arguments, **options):
        running.append(Script(*arguments, **options))
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.mark.parametrize("greets", [True, False])
def test_one_timeout_for_all_attempts(make, script, greets):
    where = script(0).address if greets else serve(hold=WAIT_SECONDS)
    with make(where, timeout=0.5) as producer:
        with pytest.raises(PublishFailed, match=r"given up after 1 try in 0\.5 s: .*no answer in time") as caught:
            producer.publish("t", b"x")
        assert (caught.value.unknown, caught.value.unsent) == ((1, 0) if greets else (0, 1))


@pytest.mark.parametrize("greets", [True, False])
def test_an_nsqd_that_hangs_leaves_time_for_the_next(make, script, daemon, greets):
    """Slow: half the timeout passes; a shorter one could hit the answering daemon on a busy machine."""
    where = script(0).address if greets else serve(hold=WAIT_SECONDS)
    node = daemon()
    with make([where, address(node)], timeout=8) as producer:
        producer.publish("t", b"x")
        assert producer.stats().retries == 1 and list(producer.stats().down) == [where]
    assert node.stats("t")["message_count"] == 1


def test_what_became_of_a_batch(make, script):
    with make(script(1).address, timeout=0.5) as producer:
        with pytest.raises(PublishFailed, match="of 40 messages 10 were acknowledged, 20 may have been published, 10 were not sent") as caught:
            producer.publish_many("t", [b"%d" % n for n in range(40)], batch_rows=10, window=2)
        assert (caught.value.acknowledged, caught.value.unknown, caught.value.unsent) == (10, 20, 10)
        assert producer.stats().published == 10 and producer.stats().failed == 1


def test_acknowledged_messages_are_not_sent_again(make, script, daemon):
    node = daemon()
    for publish, window in (("publish_many", {"batch_rows": 10, "window": 1}), ("publish_deferred_many", {"delay_ms": 1})):
        with make([script(1, ends=True).address, address(node)], backoff=0.01) as producer:
            bodies = [b"%s %d" % (publish.encode(), n) for n in range(40)]
            getattr(producer, publish)("t", bodies, **window)
    found = drained(node, 70)
    assert [body for body in found if b"deferred" not in body] == sorted(b"publish_many %d" % n for n in range(10, 40))


def test_a_batch_that_makes_progress_has_time(daemon, proxy, make):
    """The timeout limits the time without an acknowledgement. Slow: takes longer than the timeout in all."""
    node = daemon()
    between = proxy(node)
    with make(between.address, timeout=3) as producer:
        producer.connect()

        between.to_nsqd = 1_000_000
        stop = threading.Event()

        def trickle():
            while not stop.wait(1.0):
                between.to_nsqd = 1_000_000
        thread = threading.Thread(target=trickle)
        thread.start()
        producer.publish_many("t", [b"x" * 100_000] * 50, batch_rows=2, window=1)
        stop.set()
        thread.join()
    assert node.stats("t")["message_count"] == 50


def test_closed(make, daemon):
    node = daemon()
    with make(address(node)) as producer:
        producer.publish("t", b"x")
        producer.close()
        producer.close()
        for call in (lambda: producer.publish("t", b"x"), lambda: producer.publish_many("t", [b"x"]), producer.connect, producer.ping,
                     lambda: producer.publish_deferred("t", b"x", 1)):
            with pytest.raises(Closed, match="the producer is closed"):
                call()
    assert node.stats("t")["message_count"] == 1


def test_cancelling_returns_at_once(script, monkeypatch):
    for module in ("producer", "connection"):
        monkeypatch.setattr(f"nsqc.client.aio.{module}.CLOSE_SECONDS", LONG)

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), aio.Producer(script(0).address, timeout=LONG) as producer:
                await producer.publish("t", b"x")
        assert asyncio.all_tasks() == {asyncio.current_task()}
    runner_of(None)(main)


def counts(nodes) -> list[int]:
    return [sum(topic["message_count"] for topic in node.stats()["topics"]) for node in nodes]


def test_spread_over_all_nsqd(make, daemon):
    nodes = [daemon(kept()) for _ in range(3)]
    with make([address(node) for node in nodes], spread=True, backoff=0.01) as producer:
        for n in range(30):
            producer.publish("t", b"%d" % n)
        assert counts(nodes) == [10, 10, 10]
        assert producer.stats().connections == {address(node): 1 for node in nodes}
        nodes[0].kill()
        for n in range(30):
            producer.publish("t", b"%d" % n)
        assert sum(counts(nodes[1:])) == 50 and address(nodes[0]) in producer.stats().down
        nodes[0].start()

        def came_back():
            producer.publish("t", b"again")
            return counts(nodes[:1]) != [0]
        wait_until(came_back)
        assert producer.stats().down == {}
        for node in nodes:
            node.kill()
        with pytest.raises(PublishFailed, match="given up after 6 tries"):
            producer.publish("t", b"x")


def test_spread_finds_new_nsqd(make, daemon, lookupd):
    nodes = [daemon(), daemon()]
    lookupd.ports = [nodes[0].tcp_port]
    with make(nsqlookupd=lookupd.address, spread=True, poll_interval=0.1) as producer:
        producer.publish("t", b"x")
        assert counts(nodes) == [1, 0]
        lookupd.ports = [node.tcp_port for node in nodes]

        def reached():
            producer.publish("t", b"x")
            return counts(nodes)[1] > 0
        wait_until(reached)


def test_connect_ping_and_stats(make, daemon, proxy):
    node = daemon()
    between = proxy(node)
    where = between.address
    with make(where, retries=0) as producer:
        assert producer.stats() == (0, 0, 0, {}, {}, 0)
        producer.connect()
        assert between.connections == 1 and producer.stats().connections == {where: 1}
        assert producer.ping() > 0
        producer.publish_many("t", [b"x"] * 5)
        assert between.connections == 2 and producer.stats() == (5, 0, 0, {where: 1}, {}, 0)
        between.to_client, between.cut = 0, True
        with pytest.raises(PublishFailed, match="closed by nsqd"):
            producer.ping()
        assert producer.stats().failed == 1 and "closed by nsqd" in producer.stats().down[where]
