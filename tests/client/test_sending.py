"""Producer.send(): batches in the background, an outcome for each message, back-pressure, flush; the same in both clients."""

import asyncio
import gc
import subprocess
import sys
import threading
from concurrent.futures import Future, wait
from contextlib import suppress

import pytest

from nsqc.client import Closed, Consumer, NoAnswer, Producer, PublishFailed, Refused, aio
from tests.client.conftest import address
from tests.client.test_threads import together
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port, kept


def stored(node, count: int) -> list[bytes]:
    """The bodies of this many messages, in the daemon's order."""
    with Consumer("t", "c", address(node), max_in_flight=100) as consumer:
        found = []
        while len(found) < count:
            message = consumer.get(WAIT_SECONDS)
            found.append(message.body)
            message.finish()
    return found


class Blocking:
    """A Producer, and how to wait for the futures of send()."""

    def __init__(self, *arguments, **options):
        self.producer = Producer(*arguments, **options)

    def send(self, body: bytes, topic: str = "t"):
        return self.producer.send(topic, body)

    def outcome(self, future) -> Exception | None:
        return future.exception(WAIT_SECONDS)

    def flush(self, timeout: float | None = None) -> None:
        self.producer.flush(timeout)

    def close(self) -> None:
        self.producer.close()


class OnLoop:
    """The same with an asyncio Producer, on a loop in a thread."""

    def __init__(self, *arguments, **options):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.producer = aio.Producer(*arguments, **options)

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WAIT_SECONDS)

    def send(self, body: bytes, topic: str = "t"):
        return self.run(self.producer.send(topic, body))

    def outcome(self, future) -> Exception | None:
        async def seen():
            await asyncio.wait([future])
            return future.exception()
        return self.run(seen())

    def flush(self, timeout: float | None = None) -> None:
        self.run(self.producer.flush(timeout))

    def close(self) -> None:
        if self.thread.is_alive():
            self.run(self.producer.close())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.loop.close()


@pytest.fixture(params=[Blocking, OnLoop], ids=["blocking", "asyncio"])
def producing(request):
    """Creates a producer: producing(ADDRESS, linger=...)."""
    made = []

    def make(*arguments, **options):
        made.append(request.param(*arguments, **options))
        return made[-1]
    yield make
    for one in made:
        one.close()


def test_messages_are_sent_together_and_in_order(daemon, producing, proxy):
    node = daemon()
    producer = producing(proxy(node).address, linger=0.01)
    bodies = [b"%d" % n for n in range(3000)]
    futures = [producer.send(body) for body in bodies]
    assert {producer.outcome(future) for future in futures} == {None}
    assert stored(node, 3000) == bodies
    wait_until(lambda: producer.producer.stats().pending_bytes == 0)
    assert producer.producer.stats().published == 3000


def test_a_bad_message_fails_alone(daemon, producing):
    node = daemon("--max-msg-size=100")
    failed = []
    producer = producing(address(node), linger=60, on_error=lambda topic, body, error: failed.append((topic, body, error.code)))
    futures = [producer.send(b"x" * (101 if n in (3, 17) else 1)) for n in range(20)]
    producer.flush(WAIT_SECONDS)
    errors = {n: producer.outcome(future) for n, future in enumerate(futures) if producer.outcome(future) is not None}
    assert errors.keys() == {3, 17} and all(isinstance(error, Refused) for error in errors.values())
    assert node.stats("t")["message_count"] == 18 and failed == [("t", b"x" * 101, "E_BAD_MESSAGE")] * 2


def test_back_pressure(daemon, producing, proxy):
    """send() waits while too many bytes are unacknowledged, and raises after the timeout."""
    node = daemon()
    between = proxy(node)
    producer = producing(between.address, linger=0, timeout=1, max_pending_bytes=1000, retries=100)
    assert producer.outcome(producer.send(b"x" * 999)) is None
    between.to_client, between.lose = 0, True
    waiting = producer.send(b"y" * 999)
    with pytest.raises(PublishFailed, match="no room within 1 s: max_pending_bytes is 1000"):
        while True:     # the message before may have failed meanwhile
            producer.send(b"z" * 999)
    assert producer.outcome(waiting) is None or isinstance(producer.outcome(waiting), PublishFailed)
    between.heal()
    wait_until(lambda: producer.producer.stats().pending_bytes == 0)
    assert producer.outcome(producer.send(b"x" * 999)) is None


def test_failures_are_logged_without_a_callback(producing, caplog):
    producer = producing(f"127.0.0.1:{free_port()}", retries=0)
    futures = [producer.send(b"x") for _ in range(3)]
    producer.flush()
    for future in futures:
        assert isinstance(producer.outcome(future), PublishFailed) and "Connection refused" in str(producer.outcome(future))
    wait_until(lambda: "topic t: messages not published: " in caplog.text)
    del futures, future
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_flush_does_not_linger(daemon, producing, proxy):
    node = daemon()
    between = proxy(node)
    producer = producing(between.address, linger=WAIT_SECONDS)
    first = [producer.send(b"x"), producer.send(b"y", "u")]
    producer.flush()
    assert [producer.outcome(future) for future in first] == [None, None] and node.stats("u")["message_count"] == 1
    between.to_client = 0
    producer.send(b"z")
    with pytest.raises(NoAnswer, match=r"1 of 1 messages have no outcome after 0.1 s"):
        producer.flush(0.1)
    between.heal()


def test_close_sends_what_waits(daemon, producing):
    node = daemon()
    producer = producing(address(node), linger=WAIT_SECONDS)
    for n in range(10):
        producer.send(b"%d" % n)
    producer.close()
    assert node.stats("t")["message_count"] == 10
    if isinstance(producer, Blocking):
        with pytest.raises(Closed):
            producer.send(b"x")


def test_mistakes(producing):
    for option, text in (({"linger": -1}, "linger is -1"), ({"max_pending_bytes": 0}, "max_pending_bytes is 0"),
                         ({"on_error": "log"}, "on_error is 'log'; it takes a function")):
        for kind in (Producer, aio.Producer):
            with pytest.raises((TypeError, ValueError), match=text):
                kind("127.0.0.1:9", **option)
    producer = producing("127.0.0.1:9")
    for topic, body in (("no topic", b"x"), ("t", b""), ("t", "text")):
        with pytest.raises((TypeError, ValueError)):
            producer.send(body, topic)
    assert producer.producer.stats().pending_bytes == 0


def test_threads_share_a_producer(daemon):
    """The futures are those of concurrent.futures."""
    node = daemon()
    seen = []
    with Producer(address(node)) as producer:
        def work(number):
            futures = [producer.send("t", b"%d %d" % (number, part)) for part in range(500)]
            futures[-1].add_done_callback(seen.append)
            assert isinstance(futures[0], Future) and not futures[0].cancel()
            assert not wait(futures, WAIT_SECONDS).not_done
            return {future.result() for future in futures}
        assert together(8, work) == [{None}] * 8
        wait_until(lambda: len(seen) == 8)
        assert producer.stats().connections == {address(node): 1}
    found = stored(node, 4000)
    for number in range(8):
        mine = [body for body in found if body.startswith(b"%d " % number)]
        assert mine == [b"%d %d" % (number, part) for part in range(500)]


def test_tasks_wait_for_the_futures_of_threads(daemon):
    node = daemon()

    async def main():
        with Producer(address(node)) as producer:
            await asyncio.gather(*(asyncio.wrap_future(producer.send("t", b"x")) for _ in range(100)))
    asyncio.run(main())
    assert node.stats("t")["message_count"] == 100


def test_the_thread_ends_without_messages(daemon, monkeypatch):
    monkeypatch.setattr("nsqc.client.producer.SENDER_SECONDS", 0.01)
    node = daemon()
    with Producer(address(node)) as producer:
        for _ in range(2):
            producer.send("t", b"x").result(WAIT_SECONDS)
            wait_until(lambda: producer._sender is None)
            assert producer.stats().pending_bytes == 0


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)], ids=["an error", "SystemExit"])
def test_an_on_error_that_raises(producing, caplog, error):
    def on_error(topic, body, failure):
        raise error
    producer = producing(f"127.0.0.1:{free_port()}", retries=0, on_error=on_error)
    for _ in range(2):
        futures = [producer.send(b"x"), producer.send(b"y")]
        assert all(isinstance(producer.outcome(future), PublishFailed) for future in futures)
    wait_until(lambda: caplog.text.count("on_error has raised") == 4)


def test_a_callback_that_raises(daemon, proxy, caplog):
    """The messages after it get their outcomes."""
    node = daemon()
    between = proxy(node)
    with Producer(between.address) as producer:
        producer.send("t", b"x").result(WAIT_SECONDS)
        between.to_client = 0
        futures = [producer.send("t", b"%d" % n) for n in range(10)]
        futures[0].add_done_callback(lambda future: sys.exit(3))
        between.heal()
        assert not wait(futures, WAIT_SECONDS).not_done
        producer.send("t", b"x").result(WAIT_SECONDS)
    assert "a callback of a message has raised" in caplog.text


def test_a_callback_does_not_wait_for_itself():
    """On the thread that sends, flush() raises, send() without room fails at once, and close() returns."""
    found = []

    def on_error(topic, body, error):
        for call in (producer.flush, lambda: producer.send("t", b"z" * 5000)):
            with pytest.raises((RuntimeError, PublishFailed)) as caught:
                call()
            found.append(str(caught.value))
        producer.close()
    producer = Producer(f"127.0.0.1:{free_port()}", retries=0, on_error=on_error, max_pending_bytes=5000, timeout=WAIT_SECONDS)
    assert isinstance(producer.send("t", b"x" * 5000).exception(WAIT_SECONDS), PublishFailed)
    wait_until(lambda: producer._closed)
    assert found[0].startswith("flush() in on_error") and found[1].startswith("no room within 0 s")


def test_small_messages_are_bounded(daemon, producing, proxy):
    """max_pending_bytes is about memory, of which a small message takes more than its body."""
    node = daemon()
    between = proxy(node)
    between.to_client = 0
    producer = producing(between.address, timeout=0.5, max_pending_bytes=30_000, retries=0)
    futures = []
    with suppress(PublishFailed):       # there may be no room, or room again once earlier ones have failed
        while len(futures) < 300:
            futures.append(producer.send(b"x"))
            assert sum(not future.done() for future in futures) < 120
    assert len(futures) > 50
    between.heal()


def test_a_daemon_that_is_killed(daemon, producing):
    """Each message gets an outcome, and none that was acknowledged is lost."""
    node = daemon(kept(), "--topic-storage=log")
    producer = producing(address(node), retries=20, backoff=0.02, linger=0)
    sent = {}
    for number in range(2000):
        sent[b"%d" % number] = producer.send(b"%d" % number)
        if number % 500 == 400:
            node.kill()
            node.start()
    producer.flush(WAIT_SECONDS)
    acknowledged = {body for body, future in sent.items() if producer.outcome(future) is None}
    assert b"1999" in acknowledged
    with Consumer("t", "c", address(node), max_in_flight=100) as consumer:
        while acknowledged:
            with consumer.get(WAIT_SECONDS) as message:
                acknowledged.discard(message.body)


FORK = """
import os, sys, threading
from nsqc.client import Closed, Producer
producer = Producer(sys.argv[1], linger=180)
done = producer.send("t", b"parent")
producer.flush()
future = producer.send("t", b"parent")
held, forked = threading.Event(), threading.Event()
def hold():     # as the thread that sends may, at the moment of a fork
    with producer._outcome:
        held.set()
        forked.wait()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
forked.set()
if not child:
    assert isinstance(future.exception(180), Closed) and done.result(180) is None
    mine = producer.send("t", b"child")
    producer.flush()
    os._exit(0 if mine.result() is None else 1)
assert os.waitpid(child, 0)[1] == 0 and not future.done()
producer.flush()
assert future.result() is None
producer.close()
"""


def test_fork(daemon):
    """The messages of the parent are the parent's; who waits for them in the child gets an error."""
    node = daemon()
    done = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, address(node)], capture_output=True,
                          text=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(stored(node, 3)) == [b"child", b"parent", b"parent"]


def test_the_end_of_a_program_that_does_not_wait(daemon):
    node = daemon()
    code = "import sys; from nsqc.client import Producer; p = Producer(sys.argv[1], linger=180); [p.send('t', b'x') for _ in range(100)]"
    done = subprocess.run([sys.executable, "-c", code, address(node)], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert node.stats("t")["message_count"] == 100


def test_all_tasks_are_cancelled(daemon, proxy, run_asyncio):
    """Also the one that sends: its messages fail, and the next ones are sent."""
    between = proxy(daemon())

    async def main():
        async with aio.Producer(between.address) as producer:
            await (await producer.send("t", b"x"))
            between.to_client = 0
            future = await producer.send("t", b"y")
            while producer._outbox._taken is None:
                await asyncio.sleep(0.01)
            waiting = await producer.send("t", b"z")
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.wait([future])
            assert isinstance(future.exception(), Closed)
            between.heal()
            await producer.flush()
            assert waiting.result() is None
            await (await producer.send("t", b"x"))
            while producer.stats().pending_bytes:
                await asyncio.sleep(0.01)
    run_asyncio(main)


def test_waiting_for_one_future(daemon, proxy):
    node = daemon()
    between = proxy(node)
    with Producer(between.address) as producer:
        producer.send("t", b"x").result(WAIT_SECONDS)
        between.to_client = 0
        future = producer.send("t", b"y")
        with pytest.raises(TimeoutError):
            future.result(0.05)
        between.heal()
        future.result(WAIT_SECONDS)
        assert future.done()
