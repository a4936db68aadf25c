"""The client for asyncio, on asyncio's own loop and on uvloop: everything that the blocking one does, plus
cancellation."""

import asyncio
import contextlib
import gc
import os
import random
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from nsqc.client import AuthError, BadMessage, BadName, Closed, ConnectError, LookupFailed, PublishFailed, Refused, tls
from nsqc.client.aio import Consumer, Producer
from tests.client.conftest import address
from tests.client.faults import IDENTIFIED, frame, serve
from tests.client.test_connection import WAYS, secured  # noqa: F401 (a fixture)
from tests.client.test_consumer import drained, publish
from tests.support import nested
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import kept
from tests.support.sizes import SIZES

LONG = 2 * WAIT_SECONDS     # long enough to count as blocked


async def take(consumer, count: int) -> list[bytes]:
    found = []
    while len(found) < count:
        message = await consumer.get(WAIT_SECONDS)
        assert message is not None, f"{len(found)} of {count} came"
        with message:
            found.append(message.body)
    return found


async def eventually(condition):
    return await asyncio.to_thread(wait_until, condition)


# Each way once, and each layer on each loop.
@pytest.mark.parametrize("run,way", [*((None, way) for way in WAYS if way != "tls+snappy"), *(
    (uvloop.new_event_loop, way) for way in ("plain", "tls+deflate", "tls+snappy"))], indirect=["run"],
    ids=lambda value: value if isinstance(value, str) else "uvloop" if value else "asyncio")
def test_messages_of_all_sizes_both_ways(secured, certs, run, way):  # noqa: F811
    options = {"auth_secret": "open sesame", **WAYS[way]}
    if "tls" in options:
        options["tls"] = tls(ca_file=f"{certs}/server.pem")
    bodies = [b"x", bytes(70_000), b"hello " * 100_000, *(b"m%d" % n for n in range(3000))]

    async def main():
        async with Producer(address(secured), **options) as producer, \
                Consumer("t", "c", address(secured), max_in_flight=200, **options) as consumer:
            await producer.publish("t", bodies[0])
            await producer.publish_many("t", bodies[1:], batch_bytes=100_000, batch_rows=500)
            await producer.publish_deferred_many("t", [b"late"] * 2500, 300)
            found = await take(consumer, len(bodies) + 2500)
            assert sorted(found) == sorted([*bodies, *[b"late"] * 2500])
            shown = secured.channel("t", "c")["clients"][0]
            assert (shown["tls"], shown["deflate"], shown["snappy"]) == tuple(x in way for x in ("tls", "deflate", "snappy"))
            await eventually(lambda: secured.channel("t", "c")["in_flight_count"] == 0)
    run(main)


def test_many_tasks_one_connection(daemon, proxy, run):
    node = daemon()
    between = proxy(node)

    async def main():
        async with Producer(between.address) as producer:
            await asyncio.gather(*(producer.publish("t", b"%d" % n) for n in range(2000)))
            assert len(asyncio.all_tasks()) == 1, "no task is left, and none was made for the producer"
    run(main)
    assert between.connections == 1
    assert drained(node, 2000) == sorted(b"%d" % n for n in range(2000))


def test_fail_over_under_load(daemon, run_asyncio):
    """Acknowledged messages are stored; nothing else is lost either, because it is all retried elsewhere."""
    one, two = daemon(kept(), "--mem-queue-size=0"), daemon()
    acknowledged = []

    async def main():
        async with Producer([address(one), address(two)], backoff=0.01) as producer:
            async def publish(n):
                for part in range(20):
                    await producer.publish("t", b"%d %d" % (n, part))
                    acknowledged.append((n, part))
                    if len(acknowledged) == 300:
                        one.kill()
            await asyncio.gather(*(publish(n) for n in range(50)))
    run_asyncio(main)
    assert len(acknowledged) == 1000
    one.start()
    found = [set(drained(node, count(node))) for node in (one, two)]
    assert all(found) and found[0] | found[1] == {b"%d %d" % both for both in acknowledged}


def count(node) -> int:
    topics = {topic["topic_name"]: topic["depth"] for topic in node.stats()["topics"]}
    return topics.get("t", 0)


def test_all_down_at_once_for_all(daemon, run_asyncio):
    node = daemon(kept())
    where = address(node)
    node.kill()

    async def main():
        producer = Producer(where, retries=2, backoff=0.3)      # 500 sequential retries would take minutes
        found = await asyncio.gather(*(producer.publish("t", b"x") for _ in range(500)), return_exceptions=True)
        assert {type(error) for error in found} == {PublishFailed}
        assert "given up after 3 tries: " in str(found[0]) and where in str(found[0])
        await producer.close()
    run_asyncio(main)


def test_who_is_refused_and_who_is_not(daemon, run_asyncio):
    node = daemon("--max-msg-size=10")

    async def main():
        async with Producer(address(node), retries=0) as producer:
            found = await asyncio.gather(*(producer.publish("t", b"x" * (11 if n % 100 == 50 else 5)) for n in range(400)),
                                         return_exceptions=True)
            assert [n for n, error in enumerate(found) if error is not None] == [50, 150, 250, 350]
            assert {(type(error), error.code) for error in found if error} == {(Refused, "E_BAD_MESSAGE")}
            with pytest.raises(BadName):
                await producer.publish("bad topic", b"x")
            with pytest.raises(BadMessage):
                await producer.publish("t", b"")
    run_asyncio(main)
    assert node.stats("t")["message_count"] >= 396


def test_cancelled_publishes_disturb_nobody(daemon, proxy, run):
    """Replies keep their order across cancellations, and publishes that were not cancelled arrive."""
    node = daemon()
    between = proxy(node)
    chance = random.Random(7)

    async def main():
        async with Producer(between.address) as producer:
            tasks = {n: asyncio.create_task(producer.publish_many("t", [b"%d" % n] * 2, batch_rows=1)) for n in range(500)}
            gone = chance.sample(range(500), 200)
            for n in gone:
                if chance.random() < 0.1:
                    await asyncio.sleep(0)
                tasks[n].cancel()
            await asyncio.wait(tasks.values())
            assert all(not task.cancelled() and task.exception() is None for n, task in tasks.items() if n not in gone)
            async with asyncio.timeout(WAIT_SECONDS):
                await producer.publish("t", b"after")
            return [n for n, task in tasks.items() if not task.cancelled()]
    done = run(main)
    assert between.connections == 1, "nothing was torn down for it"
    found = drained(node, count(node))
    assert all(found.count(b"%d" % n) == 2 for n in done) and found.count(b"after") == 1


def test_timeouts_around_everything(daemon, proxy, run):
    """A daemon that stops answering for a while: calls that time out raise, and later ones succeed."""
    node = daemon()
    between = proxy(node)

    async def main():
        async with Producer(between.address) as producer, Consumer("t", "c", between.address, max_in_flight=10) as consumer:
            await producer.publish("t", b"first")
            assert await take(consumer, 1) == [b"first"]
            between.to_client = 0
            for call in (lambda: producer.publish("t", b"?"), lambda: producer.publish_many("t", [b"?"] * 10),
                         lambda: consumer.get(), lambda: anext(consumer)):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await call()
            assert await consumer.get(0.05) is None
            between.heal()
            await producer.publish("t", b"last")
            # Publishes cancelled in a full pipe had already been sent.
            assert sorted(await take(consumer, 12)) == [b"?"] * 11 + [b"last"]
    run(main)
    assert between.connections == 2


def test_a_cancelled_get_keeps_what_came(daemon, run):
    node = daemon()
    publish(node, *(b"%d" % n for n in range(1000)))

    async def main():
        found = []
        async with Consumer("t", "c", address(node), max_in_flight=50) as consumer:
            async def some():
                async for message in consumer:
                    with message:
                        found.append(message.body)
                    await asyncio.sleep(0)
            while len(found) < 1000:
                tasks = [asyncio.create_task(some()) for _ in range(3)]
                await asyncio.sleep(random.random() * 0.01)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
        return found
    assert sorted(run(main)) == sorted(b"%d" % n for n in range(1000))
    found = node.channel("t", "c")
    assert (found["depth"], found["in_flight_count"], found["timeout_count"]) == (0, 0, 0)


def test_leaving_hands_everything_back_at_once(daemon, run_asyncio):
    node = daemon()
    publish(node, *(b"%d" % n for n in range(1000)))

    async def main():
        async with Consumer("t", "c", address(node), max_in_flight=500) as consumer:
            for n in range(10):
                message = await consumer.get(WAIT_SECONDS)
                if n % 2:
                    message.finish()
            waiting = asyncio.create_task(asyncio.wait_for(anext(Consumer("t", "other", address(node))), 0.01))
            with contextlib.suppress(TimeoutError):
                await waiting
        assert await consumer.get() is None
        assert [message async for message in consumer] == []
        found = node.channel("t", "c")
        assert (found["depth"], found["in_flight_count"], found["timeout_count"]) == (995, 0, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)    # from the unclosed one
        run_asyncio(main)


def test_with_message(daemon, run_asyncio):
    node = daemon()
    publish(node, b"good", b"bad", b"answered")

    async def main():
        async with Consumer("t", "c", address(node), max_in_flight=1) as consumer:
            attempts = []
            while len(attempts) < 5:
                message = await consumer.get(WAIT_SECONDS)
                with contextlib.suppress(ZeroDivisionError), message:
                    attempts.append((message.body, message.attempts))
                    message.touch()
                    if message.attempts > 1:
                        continue
                    if message.body == b"answered":
                        message.requeue(1)
                    if message.body != b"good":
                        1 / 0  # noqa: B018
                assert message.answered
            assert sorted(attempts) == [(b"answered", 1), (b"answered", 2), (b"bad", 1), (b"bad", 2), (b"good", 1)]
            task = asyncio.current_task()
            await eventually(lambda: node.channel("t", "c")["in_flight_count"] == 0)
            publish(node, b"interrupted")
            with pytest.raises(asyncio.CancelledError), await consumer.get(WAIT_SECONDS) as message:
                task.cancel()
                await asyncio.sleep(1)
            task.uncancel()
            assert (await consumer.get(WAIT_SECONDS)).attempts == 2
    run_asyncio(main)


def test_messages_worked_on_in_threads(daemon):
    node = daemon()
    publish(node, *(b"%d" % n for n in range(500)))

    def work(message):
        with message:
            if message.attempts == 1 and int(message.body) % 10 == 0:
                message.requeue(1)
            return message.answered

    async def main():
        async with Consumer("t", "c", address(node), max_in_flight=20) as consumer:
            for _ in range(550):
                working = asyncio.to_thread(work, await consumer.get(WAIT_SECONDS))
                await working
            await eventually(lambda: node.channel("t", "c")["in_flight_count"] == 0)
        assert node.channel("t", "c")["depth"] == 0
    asyncio.run(main(), debug=True)     # reports calls that are not thread-safe


def test_messages_of_a_connection_that_is_gone(daemon, run_asyncio):
    node = daemon()
    publish(node, b"x", b"y")

    async def main():
        async with Consumer("t", "c", address(node), max_in_flight=2) as consumer:
            first, second = await consumer.get(WAIT_SECONDS), await consumer.get(WAIT_SECONDS)
            await asyncio.to_thread(node.kill)
            await asyncio.sleep(0.05)
            with pytest.raises(ZeroDivisionError), first:   # not the lost connection's error
                1 / 0  # noqa: B018
            with second:
                second.touch()
    run_asyncio(main)


def test_a_daemon_that_comes_back(daemon, run_asyncio):
    node = daemon(kept())

    async def main():
        async with Consumer("t", "c", address(node), max_in_flight=10, backoff=0.05) as consumer, \
                Producer(address(node), backoff=0.05) as producer:
            await producer.publish("t", b"before")
            assert await take(consumer, 1) == [b"before"]
            await eventually(lambda: node.channel("t", "c")["in_flight_count"] == 0)
            await asyncio.to_thread(node.restart)
            await producer.publish("t", b"after")
            assert await take(consumer, 1) == [b"after"]
    run_asyncio(main)


@pytest.mark.parametrize("in_flight,connections", [(1, 1), (100, 2)])
def test_two_daemons(daemon, monkeypatch, run_asyncio, in_flight, connections):
    monkeypatch.setattr("nsqc.client.peers.ROTATE_SECONDS", 0.1)
    monkeypatch.setattr("nsqc.client.aio.consumer.TICK_SECONDS", 0.1)
    nodes = [daemon(), daemon()]
    for node in nodes:
        publish(node, *(b"%d" % n for n in range(50)))

    async def main():
        async with Consumer("t", "c", map(address, nodes), max_in_flight=in_flight, connections=connections) as consumer:
            assert sorted(await take(consumer, 100)) == sorted([b"%d" % n for n in range(50)] * 2)
            ready = [client["ready_count"] for node in nodes for client in node.channel("t", "c")["clients"]]
            assert len(ready) == 2 * connections and sum(ready) <= in_flight
    run_asyncio(main)
    for node in nodes:
        wait_until(lambda node=node: not node.channel("t", "c")["clients"])


def test_by_lookup(daemon, lookupd, run_asyncio):
    one, two = daemon(), daemon()
    lookupd.ports = [one.tcp_port]
    publish(two, b"b")

    async def main():
        async with Producer(nsqlookupd=[lookupd.address]) as producer:
            await producer.publish("t", b"a")
        async with Consumer("t", "c", nsqlookupd=[lookupd.address], poll_interval=0.2, max_in_flight=5) as consumer:
            assert await take(consumer, 1) == [b"a"]
            lookupd.ports = [two.tcp_port]
            assert await take(consumer, 1) == [b"b"]
            lookupd.status = 500
            publish(one, b"c")
            assert await take(consumer, 1) == [b"c"]
        for call in (lambda: Consumer("t", "c", nsqlookupd=[lookupd.address]).get(WAIT_SECONDS),
                     lambda: Producer(nsqlookupd=[lookupd.address]).publish("t", b"x")):
            with pytest.raises(LookupFailed):
                await call()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)    # the consumer that failed was not closed
        run_asyncio(main)


def test_what_nsqd_does_not_allow(daemon, secured, run_asyncio):  # noqa: F811
    node = daemon("--max-channel-consumers=1", "--snappy=false")
    first = node.connect().sub("t", "c")

    async def main():
        async with Consumer("t", "c", address(node), backoff=0.01) as consumer:
            for _ in range(2):
                with pytest.raises(Refused, match="E_SUB_FAILED"):
                    await consumer.get(WAIT_SECONDS)
            await asyncio.to_thread(first.close)
            publish(node, b"x")
            found = None
            while found is None:
                with contextlib.suppress(Refused):
                    found = await consumer.get(WAIT_SECONDS)
        for where, options, error, text in (
                (node, {"snappy": True}, PublishFailed, "does not offer snappy"),
                (secured, {"tls": tls(verify=False)}, AuthError, "there is no auth_secret"),
                (secured, {"tls": True}, PublishFailed, "certificate verify failed")):
            with pytest.raises(error, match=text):
                await Producer(address(where), retries=0, **options).publish("t", b"x")
    run_asyncio(main)


@pytest.mark.parametrize("answers,text", [
    ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), r"this is an HTTP port \(nsqd's is 4151, nsqlookupd's 4161 by default\), not nsqd's TCP port \(4150 by default\)"),
    ((b"\x15\x03\x01\0\2\2\x46",), "this is a TLS port, not nsqd's TCP port|reset"),
    ((b"\0\0\0\x0eE_BAD_PROTOCOL",), "this is nsqlookupd's TCP port, not nsqd's TCP port"),
    ((frame(0, b"OK"),), "not an nsqd"),
    ((frame(0, nested.OBJECT),), "not an nsqd"),
    ((frame(0, b"[1]"),), "not an nsqd"),
    ((), "closed by nsqd|reset"),
    ((IDENTIFIED[:9],), "closed by nsqd|reset"),
    ((IDENTIFIED, frame(0, b"_heartbeat_"), frame(0, b"what?")), "answers b'what\\?' instead of OK|without a command"),
    ((IDENTIFIED + frame(0, b"OK"),), "answers b'OK' without a command|closed by|reset"),  # in one read: later it would answer PUB
    ((IDENTIFIED, b"\x7f\xff\xff\xff\0\0\0\2"), "a frame of 2147483647 bytes"),
    *(((IDENTIFIED, size.to_bytes(4, "big", signed=True)), f"a frame of {size} bytes") for size in SIZES),
    ((IDENTIFIED, frame(2, b"short")), "a message of 5 bytes"),
    ((frame(0, b'{"tls_v1": true}'), b"\x15\x03\x03\x00\x02\x02\x28"), "SSL|handshake|alert|unencrypted|client certificate"),
])
def test_servers_that_go_wrong(run, answers, text):
    async def main():
        producer = Producer(serve(*answers, hold=0.3), retries=0, timeout=WAIT_SECONDS,
                            tls=tls(verify=False) if b"tls_v1" in b"".join(answers) else None)
        with pytest.raises(PublishFailed, match=text):
            await producer.publish("t", b"x")
        await producer.close()
    run(main)


def test_no_answer_in_time(run_asyncio):
    async def main():
        for answers, end in (((), ""), ((IDENTIFIED,), "; the message may have been published")):
            producer = Producer(serve(*answers, hold=WAIT_SECONDS), retries=0, timeout=0.2)
            found = await asyncio.gather(*(producer.publish("t", b"x") for _ in range(3)), return_exceptions=True)
            texts = {str(error).rpartition(": ")[2] for error in found}     # the first time-out closes the connection
            assert {f"no answer in time{end}"} <= texts <= {f"no answer in time{end}", f"the connection is closed{end}"}
            await producer.close()
    run_asyncio(main)


def test_a_daemon_that_stops_reading(daemon, proxy, run):
    """Publishers wait instead of filling memory, time out, and continue elsewhere. Slow: a shorter time-out could also
    hit the answering daemon on a busy machine."""
    node, other = daemon(), daemon()
    between = proxy(node)

    async def main():
        producer = Producer([between.address, address(other)], timeout=10, backoff=0.01)
        await producer.publish("t", b"x")
        between.to_nsqd = 0
        body = b"x" * 1_000_000
        tasks = [asyncio.create_task(producer.publish("t", body)) for _ in range(50)]
        connection = producer._connections[""]
        while not connection.paused:
            await asyncio.sleep(0.01)
        assert connection._transport.get_write_buffer_size() + connection._out_bytes < 5_000_000
        await asyncio.gather(*tasks)
        await producer.close()
    run(main)
    assert other.stats("t")["message_count"] >= 50      # more, if the machine was slow to answer one


@pytest.mark.parametrize("cut", [0, 7, 30, 300])
def test_closed_in_the_middle_of_a_frame(daemon, proxy, run, cut):
    node = daemon()
    between = proxy(node)
    publish(node, *(b"%d" % n * 20 for n in range(50)))

    async def main():
        async with Consumer("t", "c", between.address, max_in_flight=50, backoff=0.01) as consumer, \
                Producer(between.address, backoff=0.01) as producer:
            first = await take(consumer, 1)
            await producer.publish("t2", b"x")
            between.cut, between.to_client = True, cut
            publishing = asyncio.create_task(producer.publish("t2", b"y"))
            await asyncio.sleep(0.05)
            between.heal()
            await publishing
            found = set(first)
            while len(found) < 50:
                found |= set(await take(consumer, 1))
    run(main)


def test_heartbeats_are_answered(daemon, run_asyncio):
    node = daemon()
    options = {"heartbeat_interval_ms": 1000}

    async def main():
        async with Producer(address(node), **options) as producer, Consumer("t", "c", address(node), **options) as consumer:
            await producer.publish("t", b"x")
            message = await consumer.get(WAIT_SECONDS)
            connection = producer._connections[""]
            await asyncio.sleep(2.6)
            message.finish()
            await producer.publish("t", b"y")
            assert producer._connections[""] is connection
            assert await take(consumer, 1) == [b"y"]
    run_asyncio(main)


def test_a_busy_handler_lets_the_loop_run(daemon, run_asyncio):
    node = daemon()
    publish(node, *[b"x"] * 40)

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1
        ticking = asyncio.create_task(tick())
        async with Consumer("t", "c", address(node), max_in_flight=40) as consumer:
            (await consumer.get(WAIT_SECONDS)).finish()
            await asyncio.sleep(0.2)
            before = ticks
            for _ in range(39):
                with await consumer.get(WAIT_SECONDS):
                    time.sleep(0.011)
            assert ticks - before >= 30
        ticking.cancel()
    run_asyncio(main)


# ---------------------------------------------------------------------- leaks


def test_two_event_loops(daemon):
    node = daemon()
    producer = Producer(address(node))
    with asyncio.Runner() as one, asyncio.Runner() as two:
        one.run(producer.publish("t", b"a"))
        with pytest.raises(RuntimeError, match="another event loop"):
            two.run(producer.publish("t", b"b"))
        one.run(producer.close())
        with pytest.raises(Closed, match="the producer is closed"):
            one.run(producer.publish("t", b"c"))
        consumer = Consumer("t", "c", address(node), max_in_flight=5)
        assert one.run(consumer.get(WAIT_SECONDS)).body == b"a"
        with pytest.raises(RuntimeError, match="another event loop"):
            two.run(consumer.get(WAIT_SECONDS))
        one.run(consumer.close())


def test_a_loop_that_is_gone(daemon):
    node = daemon()
    producer = Producer(address(node))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for n in range(3):
            asyncio.run(producer.publish("t", b"%d" % n))
        del producer
        gc.collect()
    assert node.stats("t")["message_count"] == 3


def test_unclosed_ones_are_told_of(daemon, run):
    node = daemon()
    publish(node, b"x")

    async def main():
        producer, consumer = Producer(address(node)), Consumer("t", "c", address(node))
        await producer.publish("t", b"x")
        await consumer.get(WAIT_SECONDS)
        with pytest.warns(ResourceWarning, match="unclosed producer to nsqd 127"):
            del producer
            gc.collect()
        await eventually(lambda: not node.stats()["producers"])
    with pytest.warns(ResourceWarning, match="unclosed consumer of t/c"):
        run(main)
    wait_until(lambda: not node.channel("t", "c")["clients"])


END = """
import asyncio, sys
from nsqc.client.aio import Consumer, Producer
async def main():
    global producer, consumer
    producer, consumer = Producer(sys.argv[1]), Consumer("t", "c", sys.argv[1], max_in_flight=10)
    await producer.publish("t", b"x")
    await consumer.get(180)
    waiting = asyncio.create_task(consumer.get())
    await asyncio.sleep(0)
    if sys.argv[2] == "exit":
        sys.exit(0)
    if sys.argv[2] == "raise":
        raise KeyboardInterrupt
asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["return", "exit", "raise"])
def test_the_end_of_a_program_with_open_clients(daemon, way):
    node = daemon()
    done = subprocess.run([sys.executable, "-c", END, address(node), way], capture_output=True, text=True, timeout=WAIT_SECONDS,
                          env={name: value for name, value in os.environ.items() if name != "PYTHONDEVMODE"})
    if way == "raise":
        assert done.stderr.rstrip().endswith("KeyboardInterrupt")
        assert "Exception ignored" not in done.stderr and "never retrieved" not in done.stderr
    else:
        assert (done.returncode, done.stderr) == (0, "")
    wait_until(lambda: not node.channel("t", "c")["clients"])


def test_leaving_a_lookup_that_hangs(run_asyncio):
    """A nsqlookupd that does not answer delays neither the context's exit nor the end of the loop."""
    async def main():
        async with Consumer("t", "c", nsqlookupd=[serve(hold=LONG)], timeout=LONG) as consumer:
            assert await consumer.get(0.05) is None
        producer = Producer(nsqlookupd=[serve(hold=LONG)], timeout=LONG)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await producer.publish("t", b"x")
        await producer.close()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(run_asyncio, main).result(WAIT_SECONDS)


def test_connect_error_is_an_os_error():
    assert issubclass(ConnectError, OSError)


@pytest.mark.parametrize("answers", [(IDENTIFIED, b"\x7f\xff\xff\xff\0\0\0\2"), (b"SSH-2.0-OpenSSH_9.2\r\n",), (frame(1, b"E_BAD_BODY no"),)])
def test_a_consumer_goes_on_beside_one_that_is_no_nsqd(daemon, run_asyncio, answers):
    node = daemon()
    publish(node, b"x")

    async def main():
        async with Consumer("t", "c", [serve(*answers, hold=0.2), address(node)], max_in_flight=2, timeout=WAIT_SECONDS) as consumer:
            found = None
            while found is None:
                with contextlib.suppress(Refused):      # the server's error is reported once
                    found = await consumer.get(WAIT_SECONDS)
            found.finish()
    run_asyncio(main)


def test_leaving_may_be_cancelled(daemon, proxy, run, monkeypatch):
    """Closing without time to flush: connections are closed all the same, and nothing leaks."""
    for module in ("producer", "connection", "consumer"):
        monkeypatch.setattr(f"nsqc.client.aio.{module}.CLOSE_SECONDS", 1.0)
    node = daemon()
    between = proxy(node)
    publish(node, b"x")

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                async with Producer(between.address) as producer, Consumer("t", "c", between.address) as consumer:
                    await producer.publish("t", b"y")
                    await consumer.get(WAIT_SECONDS)
                    between.to_client = 0
                    waiting = asyncio.create_task(producer.publish("t", b"z"))
                    await asyncio.sleep(0.1)
                    limit.reschedule(asyncio.get_running_loop().time() + 0.1)
        waiting.cancel()
        await asyncio.wait({waiting})
        await producer.close()
        await consumer.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}
    run(main)
    wait_until(lambda: not node.channel("t", "c")["clients"])
