"""Heartbeats, and messages kept alive, while a handler works."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from nsqc.client import Consumer, Producer, Refused, aio, tls
from tests.client.conftest import address
from tests.client.test_connection import WAYS, secured  # noqa: F401 (a fixture)
from tests.client.test_consumer import publish, take
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import kept

BEYOND = 6.0    # seconds; nsqd waits for two heartbeat intervals of two seconds


def test_a_handler_that_blocks_keeps_its_connection(daemon, proxy):
    node = daemon()
    between = proxy(node)
    publish(node, b"slow", b"next")
    with Consumer("t", "c", between.address, heartbeat_interval_ms=2000) as consumer:
        message = consumer.get(WAIT_SECONDS)
        time.sleep(BEYOND)
        message.finish()
        assert take(consumer, 1) == [b"next"]
        assert between.connections == 1
    found = node.channel("t", "c")
    assert (found["depth"], found["requeue_count"], found["timeout_count"]) == (0, 0, 0)


def test_messages_are_touched_up_to_the_limit(daemon):
    node = daemon()
    publish(node, b"waits", b"for its turn")
    with Consumer("t", "c", address(node), max_in_flight=2, msg_timeout_ms=3000, touch_limit=60) as consumer:
        message = consumer.get(WAIT_SECONDS)
        time.sleep(BEYOND)
        message.finish()
        assert len(take(consumer, 1)) == 1
        wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
        assert node.channel("t", "c")["timeout_count"] == 0
    publish(node, b"too long")
    with Consumer("t", "c", address(node), msg_timeout_ms=3000, touch_limit=0.5) as consumer:
        assert consumer.get(WAIT_SECONDS).body == b"too long"
        wait_until(lambda: node.channel("t", "c")["timeout_count"] == 1)


def test_asyncio_touches_too(daemon, run):
    node = daemon()
    publish(node, b"x")

    async def main():
        async with aio.Consumer("t", "c", address(node), msg_timeout_ms=3000, touch_limit=60) as consumer:
            message = await consumer.get(WAIT_SECONDS)
            await asyncio.sleep(BEYOND)
            message.finish()
            await asyncio.to_thread(wait_until, lambda: node.channel("t", "c")["in_flight_count"] == 0)
    run(main)
    assert node.channel("t", "c")["timeout_count"] == 0


def test_a_coroutine_that_blocks_its_loop_keeps_its_connection(daemon, proxy, run):
    node = daemon()
    between = proxy(node)
    publish(node, b"slow", b"next")

    async def main():
        async with aio.Consumer("t", "c", between.address, heartbeat_interval_ms=2000, msg_timeout_ms=3000, touch_limit=60) as consumer:
            message = await consumer.get(WAIT_SECONDS)
            await asyncio.sleep(1)
            time.sleep(BEYOND)
            message.finish()
            message = await consumer.get(WAIT_SECONDS)
            assert message.body == b"next"
            message.finish()
            await asyncio.to_thread(wait_until, lambda: node.channel("t", "c")["in_flight_count"] == 0)
    run(main)
    found = node.channel("t", "c")
    assert (found["depth"], found["requeue_count"], found["timeout_count"], between.connections) == (0, 0, 0, 1)


def test_a_daemon_that_comes_back_while_a_handler_works(daemon):
    """The background thread reconnects: the next message is there when the handler returns."""
    node = daemon(kept())
    publish(node, b"before")
    with Consumer("t", "c", address(node), backoff=0.05) as consumer:
        message = consumer.get(WAIT_SECONDS)
        node.restart()
        wait_until(lambda: node.channel("t", "c")["clients"])
        message.finish()    # too late, and no error
        publish(node, b"after")
        wait_until(lambda: consumer.stats().waiting)
        assert sorted(take(consumer, 2)) == [b"after", b"before"]   # the restart requeued the first message


def test_an_error_in_the_background_reaches_the_application(daemon):
    flag = kept()
    node = daemon(flag)
    publish(node, b"x")
    with Consumer("t", "c", address(node), backoff=0.05) as consumer:
        message = consumer.get(WAIT_SECONDS)
        node.stop()
        node.start("--max-channel-consumers=1")
        first = node.connect().sub("t", "c")
        wait_until(lambda: consumer._error is not None)
        message.finish()
        with pytest.raises(Refused, match="E_SUB_FAILED"):
            consumer.get(WAIT_SECONDS)
        first.close()


@pytest.mark.parametrize("way", ["plain", "tls", "tls+deflate"])
def test_threads_answer_while_another_reads(secured, certs, way):  # noqa: F811
    """Also over TLS and codecs, whose state reads and writes share."""
    options = {"auth_secret": "open sesame", **WAYS[way]}
    if "tls" in options:
        options["tls"] = tls(ca_file=f"{certs}/server.pem")
    bodies = [b"%d" % n for n in range(3000)]
    publish_secured(secured, bodies, options)
    found: list[bytes] = []
    with Consumer("t", "c", address(secured), max_in_flight=100, **options) as consumer:
        def work():
            while len(found) < len(bodies):
                if (message := consumer.get(0.1)) is not None:
                    found.append(message.body)
                    message.finish()
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_SECONDS)
        assert sorted(found) == sorted(bodies)
        wait_until(lambda: secured.channel("t", "c")["in_flight_count"] == 0)
    assert secured.channel("t", "c")["requeue_count"] == 0


def publish_secured(node, bodies, options) -> None:
    with Producer(address(node), **options) as producer:
        producer.publish_many("t", bodies)


def test_handing_back_what_was_not_taken(daemon):
    node = daemon()
    publish(node, *[b"x"] * 10)
    with Consumer("t", "c", address(node), max_in_flight=10) as consumer:
        taken = consumer.get(WAIT_SECONDS)
        wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 10)
        consumer.hand_back()
        assert consumer.get(1) is None and list(consumer) == []
        wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 1 and node.channel("t", "c")["depth"] == 9)
        taken.finish()
        wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
    assert node.channel("t", "c")["depth"] == 9


def test_stopping_from_another_thread(daemon):
    node = daemon()
    publish(node, b"x", b"y")
    with Consumer("t", "c", address(node)) as consumer:
        found = []
        waiting = threading.Thread(target=lambda: found.extend(message.body for message in consumer))
        waiting.start()
        wait_until(lambda: found)
        consumer.stop()
        waiting.join(WAIT_SECONDS)
        assert not waiting.is_alive() and found == [b"x"] and consumer.get() is None
    assert node.channel("t", "c")["depth"] == 2


def test_closing_from_another_thread(daemon):
    node = daemon()
    consumer = Consumer("t", "c", address(node))
    found = []
    waiting = threading.Thread(target=lambda: found.append(consumer.get()))
    waiting.start()
    wait_until(lambda: any(topic["channels"] for topic in node.stats()["topics"]))
    consumer.close()
    waiting.join(WAIT_SECONDS)
    assert found == [None]


def test_stopping_a_consumer_of_asyncio(daemon, run):
    node = daemon()
    publish(node, b"x", b"y")

    async def main():
        async with aio.Consumer("t", "c", address(node), max_in_flight=2) as consumer:
            async for message in consumer:
                message.finish()
                consumer.stop()
            assert await consumer.get() is None
    run(main)
    assert node.channel("t", "c")["depth"] == 1


SIGTERM = """
import signal, sys
from nsqc.client import Consumer
with Consumer("t", "c", sys.argv[1]) as consumer:
    signal.signal(signal.SIGTERM, lambda number, frame: consumer.stop())
    for message in consumer:
        with message:
            print(message.body.decode(), flush=True)
print("closed")
"""


def test_a_loop_that_sigterm_ends(daemon):
    node = daemon()
    publish(node, b"x")
    process = subprocess.Popen([sys.executable, "-c", SIGTERM, address(node)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "x\n"
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
    process.terminate()
    assert process.communicate(timeout=WAIT_SECONDS) == ("closed\n", "") and process.returncode == 0


FORK = """
import os, sys
from nsqc.client import Consumer
consumer = Consumer("t", "c", sys.argv[1], max_in_flight=1)
first = consumer.get(180)
child = os.fork()
if not child:
    second = consumer.get(180)
    second.finish()
    consumer.close()
    os._exit(second.body == first.body)
assert os.waitpid(child, 0)[1] == 0
first.finish()
assert consumer.get(180) is not None
consumer.close()
"""


def test_a_forked_consumer_connects_anew(daemon):
    node = daemon()
    publish(node, b"a", b"b", b"c")
    done = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, address(node)], capture_output=True, text=True,
                          timeout=WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
