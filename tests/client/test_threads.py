"""One Producer and many threads: failures, interruptions, forks and close."""

import contextlib
import gc
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest

from nsqc.client import Closed, Connection, Producer, PublishFailed, tls
from tests.client.conftest import address
from tests.client.test_connection import secured  # noqa: F401 (a fixture)
from tests.client.test_consumer import drained
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import kept


def together(count: int, work) -> list:
    """Runs work(number) in this many threads at once; returns their results and exceptions."""
    found = [None] * count
    start = threading.Barrier(count)

    def run(number):
        start.wait()
        try:
            found[number] = work(number)
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    return found


def test_many_threads(daemon, proxy):
    node = daemon()
    between = proxy(node)
    with Producer(between.address) as producer:
        def work(number):
            for part in range(50):
                producer.publish("t", b"%d %d" % (number, part))
                producer.publish_many("t", [b"%d %d x" % (number, part)] * 3, batch_rows=1)
        assert together(8, work) == [None] * 8
        assert 1 <= between.connections <= 8, "connections are used again"
    assert len(set(drained(node, 8 * 200))) == 8 * 100


def test_over_tls_and_deflate(secured, certs):  # noqa: F811
    with Producer(address(secured), tls=tls(ca_file=f"{certs}/server.pem"), deflate=3, auth_secret="x") as producer:
        assert together(4, lambda n: producer.publish_many("t", [b"%d" % n] * 1000)) == [None] * 4
    assert secured.stats("t")["message_count"] == 4000


def test_fail_over_while_others_publish(daemon):
    one, two = daemon(kept(), "--mem-queue-size=0"), daemon()
    with Producer([address(one), address(two)], backoff=0.01) as producer:
        done = []

        def work(number):
            for part in range(40):
                producer.publish("t", b"%d %d" % (number, part))
                done.append((number, part))
                if len(done) == 100:
                    one.kill()
        assert together(6, work) == [None] * 6
    one.start()
    found = [set(drained(node, node.stats("t")["depth"])) for node in (one, two)]
    assert found[0] | found[1] == {b"%d %d" % (number, part) for number in range(6) for part in range(40)}


def test_what_goes_wrong_in_one_thread_stays_there(daemon, proxy):
    """A daemon that stops answering one connection, a bad message, and an exception in the middle of a publish. Slow:
    all threads share one time-out, and a shorter one could hit answered connections on a busy machine."""
    node = daemon("--max-msg-size=100")
    between = proxy(node)
    with Producer(between.address, timeout=5, retries=0) as producer:
        producer.publish("t", b"x")
        between.to_client, between.lose = 0, True

        def get_no_answer():
            with pytest.raises(PublishFailed, match="no answer in time"):
                producer.publish("t", b"x")
        stuck = threading.Thread(target=get_no_answer)
        stuck.start()
        wait_until(lambda: node.stats("t")["message_count"] == 2)
        time.sleep(0.05)    # lets the answer get lost
        between.heal()

        def work(number):
            if number % 2:
                with pytest.raises(Exception, match="E_BAD_MESSAGE"):
                    producer.publish("t", b"x" * 101)
            else:
                for _ in range(20):
                    producer.publish("t", b"x")
        assert together(6, work) == [None] * 6
        stuck.join()


@contextlib.contextmanager
def interrupting(seconds: float):
    """Ctrl-C after this delay, and again: the first may come where Python ignores exceptions, as in a finalizer."""
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, 2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_interrupted_publish_leaves_no_answer_behind(daemon, proxy):
    """Ctrl-C while an answer is pending: the next publish must not take that answer for its own."""
    node = daemon()
    between = proxy(node)
    with Producer(between.address) as producer:
        producer.publish("t", b"before")
        between.to_client = 0
        with pytest.raises(KeyboardInterrupt), interrupting(0.2):
            producer.publish("t", b"interrupted")
        between.heal()
        assert producer._idle == []
        producer.publish("t", b"after")
        assert between.connections == 2
    assert set(drained(node, 3)) == {b"before", b"interrupted", b"after"}


def test_closing_while_others_publish(daemon):
    node = daemon()
    producer = Producer(address(node))

    done = []

    def work(number):
        if not number:
            wait_until(lambda: len(done) > 100)
            producer.close()
            return
        with pytest.raises(Closed, match="the producer is closed"):
            while True:
                producer.publish("t", b"x")
                done.append(number)
    assert together(4, work) == [None] * 4
    assert producer._idle == []
    assert node.stats("t")["message_count"] == len(done) == producer.stats().published
    assert producer.stats().connections == {}
    wait_until(lambda: not node.stats()["producers"])


def test_a_connection_that_ended_while_idle_is_no_failed_try(daemon):
    node = daemon(kept())
    with Producer(address(node), retries=0) as producer:
        producer.publish("t", b"x")
        node.restart()
        producer.publish("t", b"y")


def test_idle_connections_are_not_kept_for_ever(daemon, monkeypatch):
    node = daemon()
    with Producer(address(node)) as producer:
        together(4, lambda _: [producer.publish("t", b"x") for _ in range(20)])
        monkeypatch.setattr("nsqc.client.producer.IDLE_SECONDS", 0.0)
        time.sleep(0.01)
        producer.publish("t", b"x")
        assert len(producer._idle) == 1
        wait_until(lambda: len(node.stats()["producers"]) == 1)


FORK = """
import os, sys, threading, time
from nsqc.client import Consumer, Producer
producer = Producer(sys.argv[1])
producer.publish("t", b"parent")
consumer = Consumer("t", "c", sys.argv[1], max_in_flight=5)
message = consumer.get(180)
stop = threading.Event()
def busy():
    while not stop.is_set():
        producer.publish("busy", b"x")
threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads:
    thread.start()
children = []
for number in range(10):
    child = os.fork()
    if not child:
        for _ in range(5):
            producer.publish("t", b"child %d" % number)
        producer.close()
        os._exit(0)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 10
stop.set()
for thread in threads:
    thread.join()
message.finish()
assert consumer.get(180) is not None
producer.publish("t", b"parent")
producer.close()
consumer.close()
"""


def test_fork(daemon):
    """Children of a process with busy threads open their own connections and disturb none of the parent's."""
    node = daemon()
    done = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, address(node)], capture_output=True,
                          text=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert node.stats("t")["message_count"] == 52
    assert "error" not in node.log.lower()


def test_unclosed_ones_are_told_of(daemon):
    node = daemon()
    producer = Producer(address(node))
    producer.publish("t", b"x")
    with pytest.warns(ResourceWarning, match=f"unclosed connection to nsqd {address(node)}"):
        del producer
        gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OSError):
            Connection("127.0.0.1:9")
        Connection(address(node)).close()
        gc.collect()


def test_the_end_of_a_program_with_open_clients(daemon):
    node = daemon()
    code = ("import sys; from nsqc.client import *; p = Producer(sys.argv[1]); p.publish('t', b'x');"
            "c = Consumer('t', 'c', sys.argv[1]); m = c.get(180)")
    done = subprocess.run([sys.executable, "-c", code, address(node)], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
