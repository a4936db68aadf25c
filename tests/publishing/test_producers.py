"""Producers and Spark's sink give publishes ids, so retried publishes are stored once."""

import asyncio
import contextlib

import pytest

from nsqc.client import Producer
from nsqc.client.aio import Producer as AsyncProducer
from tests.publishing.lossy import Lossy
from tests.publishing.support import drained, remember, stored
from tests.support.daemon import Daemon


@pytest.fixture
def node(daemon) -> Daemon:
    node = daemon()
    remember(node)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    return node


@pytest.fixture
def lossy(node):
    with contextlib.closing(Lossy(node.tcp_port, 3)) as proxy:
        yield proxy


def test_a_producer_that_loses_its_answer(node, lossy):
    with Producer(lossy.address, backoff=0) as producer:
        producer.publish("t", b"one")
        assert lossy.left == 0 and producer.stats().retries == 3
        assert stored(node) == 1
        lossy.left = 2
        producer.publish_many("t", [b"%d" % number for number in range(1000)], batch_rows=100, window=3)
        lossy.left = 2
        producer.publish_deferred("t", b"later", 1)
        lossy.left = 2
        producer.publish_deferred_many("t", [b"later"] * 99, 1)
        assert lossy.left == 0
    assert stored(node) == 1 + 1000 + 1 + 99
    assert len(drained(node, count=1101)) == 1101


def test_a_producer_of_asyncio_that_loses_its_answer(node, lossy):
    async def publish() -> None:
        async with AsyncProducer(lossy.address, backoff=0) as producer:
            await producer.publish("t", b"one")
            lossy.left = 2
            await producer.publish_many("t", [b"%d" % number for number in range(1000)], batch_rows=100, window=3)
            lossy.left = 2
            await producer.publish_deferred_many("t", [b"later"] * 99, 1)

    asyncio.run(publish())
    assert stored(node) == 1100


def test_ids_of_the_application(node):
    for _ in range(2):
        with Producer(f"127.0.0.1:{node.tcp_port}") as producer:
            producer.publish("t", b"x", id="order-1")
            producer.publish_many("t", [b"a"] * 25, batch_rows=10, id="order-2")
            producer.publish_deferred("t", b"x", 1, id="order-3")
            producer.publish_deferred_many("t", [b"x"] * 3, 1, id="order-4")
    assert stored(node) == 1 + 25 + 1 + 3
    assert node.stats("t")["publish_ids"] == 1 + 3 + 1 + 1
    with Producer(f"127.0.0.1:{node.tcp_port}") as producer:
        for wrong in ("", "a b", "x" * 65, "\u00e9"):
            with pytest.raises(ValueError, match="printable ASCII"):
                producer.publish("t", b"x", id=wrong)
        with pytest.raises(ValueError, match="1 to 48"):
            producer.publish_many("t", [b"x"], id="x" * 49)
        with pytest.raises(TypeError):
            producer.publish("t", b"x", id=b"x")
        producer.publish("t", b"x")
        producer.publish("t", b"x")
    assert stored(node) == 32


def test_the_sink_of_spark(node, lossy):
    import pyarrow as pa

    from nsqc.spark import options, sink

    def publish(task: str, values: list[bytes], delays: list[int] | None = None) -> None:
        columns = {"value": pa.array(values, pa.binary())}
        if delays is not None:
            columns["defer_ms"] = pa.array(delays, pa.int32())
        chosen = options.sink({"nsqd": lossy.address, "topic": "t", "backoff": "0.01", "batchRows": "100"})
        publisher = sink.Publisher(chosen, 0, task)
        publisher.publish(pa.record_batch(columns))
        publisher.finish()
        publisher.close()

    rows = [b"%d" % number for number in range(1000)]
    publish("query/1/0", rows)
    assert lossy.left == 0
    publish("query/1/0", rows)      # the task runs again
    assert stored(node) == 1000
    publish("query/1/1", rows)      # the same rows in another partition
    publish("query/2/0", rows)      # and in another batch
    assert stored(node) == 3000
    publish("query/1/0", rows[::-1])        # in another order: none may be confused with another
    assert stored(node) == 4000
    for _ in range(2):
        publish("query/3/0", rows, [number % 2 for number in range(1000)])
    assert stored(node) == 5000
