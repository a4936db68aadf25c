"""Workers: handlers that return, raise, take long or never return; and how they stop. The same for all kinds."""

import asyncio
import contextlib
import json
import logging
import threading
import time

import pytest

from nsqc.client import (
    Consumer,
    GiveUp,
    HandlersStuck,
    HandlerTimeout,
    LookupFailed,
    Refused,
    Worker,
    aio,
    json_handler,
)
from nsqc.client.connection import Connection
from tests.client.conftest import address
from tests.client.test_consumer import publish
from tests.client.working import KINDS, RunningLoop
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import kept

QUICK = {"requeue_delay": 0.01, "max_slowdown": 0.0}


@pytest.fixture(params=["blocking", "asyncio-tasks"])
def work(request):
    """Starts a worker: with work("t", "c", ADDRESS, handler=...). Plain handlers beside an event loop share the code of
    coroutines but for the call itself, which a few tests make."""
    return KINDS[request.param]


every_kind = pytest.mark.parametrize("work", KINDS.values(), ids=KINDS)


def settled(node, channel: str = "c") -> bool:
    """Whether the channel exists and has no messages."""
    return any((found["depth"], found["in_flight_count"], found["deferred_count"]) == (0, 0, 0)
               for found in node.stats("t")["channels"] if found["channel_name"] == channel)


@every_kind
def test_each_message_is_handled_and_finished(daemon, work):
    node = daemon()
    publish(node, *(b"%d" % n for n in range(200)))
    found = []
    with work("t", "c", address(node), handler=lambda message: found.append(message.body), concurrency=4) as running:
        wait_until(lambda: settled(node))
        wait_until(lambda: running.worker.stats().finished == 200)
        assert (running.worker.stats().failed, running.worker.stats().given_up, running.worker.stats().consumer.received) == (0, 0, 200)
    assert sorted(found) == sorted(b"%d" % n for n in range(200))
    assert node.channel("t", "c")["requeue_count"] == 0 and not node.channel("t", "c")["clients"]


def test_as_many_at_a_time_as_allowed(daemon, work):
    node = daemon()
    publish(node, *[b"x"] * 12)
    together = threading.Barrier(3)
    at_work, most = [], []

    def handle(message):
        at_work.append(message)
        most.append(len(at_work))
        together.wait(WAIT_SECONDS)
        at_work.remove(message)
    with work("t", "c", address(node), handler=handle, concurrency=3):
        wait_until(lambda: settled(node))
    assert max(most) == 3


def test_a_handler_that_raises_is_no_hot_loop(daemon, work, caplog):
    """Few deliveries, and the channel backs off, although the message never succeeds."""
    node = daemon()
    publish(node, b"bad")
    attempts = []

    def handle(message):
        attempts.append(message.attempts)
        raise ValueError("no")
    with work("t", "c", address(node), handler=handle, requeue_delay=0.1) as running:
        wait_until(lambda: len(attempts) == 3)
        wait_until(lambda: running.worker.stats().slowdown > 0)
        wait_until(lambda: node.channel("t", "c")["clients"][0]["ready_count"] == 0)
    assert attempts == [1, 2, 3]
    with Consumer("t", "c", address(node)) as consumer:
        assert consumer.get(WAIT_SECONDS).attempts == 4
    lines = [record for record in caplog.records if record.name == "nsqc.worker" and record.levelno == logging.WARNING]
    assert "failed at attempt 1, again in 0." in lines[0].getMessage() and "ValueError: no" in lines[0].getMessage()
    assert (lines[0].nsq_topic, lines[0].nsq_channel, lines[0].nsq_attempts, lines[0].nsq_outcome) == ("t", "c", 1, "failed")


def test_the_channel_recovers_from_a_slowdown(daemon, work, caplog):
    """The node's statistics and the log say that it backs off, and until when; also with one message in flight at most,
    where RDY is 1 before and after."""
    caplog.set_level(logging.INFO, "nsqc.worker")
    node = daemon()

    def seen(key):
        return node.channel("t", "c")["clients"][0].get(key)
    publish(node, *[b"bad"] * 2, *(b"%d" % n for n in range(50)))
    is_ill = threading.Event()
    is_ill.set()
    found = []

    def handle(message):
        if is_ill.is_set():
            raise OSError("database is down")
        found.append(message.body)
    with work("t", "c", address(node), handler=handle, requeue_delay=0.05, max_slowdown=0.3, concurrency=3, max_in_flight=1) as running:
        wait_until(lambda: running.worker.stats().failed >= 4)
        wait_until(lambda: seen("backs_off") and seen("idle_since"))
        is_ill.clear()
        wait_until(lambda: settled(node))
        wait_until(lambda: running.worker.stats().slowdown == 0)
        wait_until(lambda: seen("ready_count") == 1 and seen("backs_off") is seen("idle_since") is None)
    assert len(found) == 52
    lines = [record.getMessage() for record in caplog.records if "backing off" in record.getMessage()]
    assert len(lines) == 2 and lines[0].startswith("t/c: backing off after a failure: no message for 0.")
    assert lines[1].startswith("t/c: no longer backing off, after ")


def test_a_slowdown_that_ends_while_its_rdy_is_sent(daemon, monkeypatch):
    """The node learns of the end, though RDY stays 1: throttle() is called by another thread."""
    node = daemon()
    send = Connection.ready

    def ready(connection, count, backs_off=False):
        send(connection, count, backs_off)
        if backs_off:
            consumer.throttle(None)
    monkeypatch.setattr(Connection, "ready", ready)
    with Consumer("t", "c", address(node), max_in_flight=1) as consumer:
        consumer.get(0.01)
        consumer.throttle(1, True)
        for _ in range(100):
            consumer.get(0.01)
        wait_until(lambda: node.channel("t", "c")["clients"][0]["ready_count"] == 1)
        assert "backs_off" not in node.channel("t", "c")["clients"][0]


def test_messages_are_given_up(daemon, work, caplog):
    node = daemon()
    publish(node, b"bad", b"hopeless", b"good")
    given_up, calls = [], []

    def handle(message):
        calls.append(message.body)
        if message.body == b"hopeless":
            raise GiveUp("it has no amount")
        if message.body == b"bad":
            raise ValueError(message.attempts)

    def on_give_up(message, error):
        given_up.append((message.body, message.attempts, str(error)))
        if len(given_up) == 1:
            raise OSError("dead letters cannot be written")     # nothing is lost: the message is redelivered
    with work("t", "c", address(node), handler=handle, max_attempts=3, on_give_up=on_give_up, **QUICK) as running:
        wait_until(lambda: settled(node) and running.worker.stats().given_up == 2)
    assert calls.count(b"bad") == 3 and calls.count(b"good") == 1
    assert len(given_up) == 3 and {(body, text) for body, _, text in given_up} >= {(b"hopeless", "it has no amount")}
    assert any("given up at attempt" in record.getMessage() and record.levelno == logging.ERROR for record in caplog.records)


def test_a_message_that_no_process_survives_is_given_up(daemon, work):
    node = daemon("--msg-timeout=300ms")
    publish(node, b"poison")
    for _ in range(3):
        killed = node.connect().sub("t", "c", 1)
        killed.message()
        killed.close()
        wait_until(lambda: not node.channel("t", "c")["clients"])
    given_up = []
    with work("t", "c", address(node), handler=lambda message: pytest.fail("it must not be called"), max_attempts=3,
              on_give_up=lambda message, error: given_up.append((message.attempts, error))):
        wait_until(lambda: settled(node))
    assert given_up == [(4, None)]


def test_handlers_may_answer(daemon, work):
    node = daemon()
    publish(node, b"later", b"done")
    attempts = []

    def handle(message):
        attempts.append(message.attempts)
        if message.body == b"done":
            message.finish()
            raise ValueError("too late")    # it is already finished
        if message.attempts < 3:
            message.requeue(1)
    with work("t", "c", address(node), handler=handle, **QUICK) as running:
        wait_until(lambda: settled(node))
        wait_until(lambda: running.worker.stats().finished == 3)
    assert sorted(attempts) == [1, 1, 2, 3]


def test_stopping_waits_for_handlers(daemon, work):
    """Messages in a handler are finished; all others become available to other consumers at once."""
    node = daemon()
    publish(node, *[b"x"] * 10)
    started, release = threading.Semaphore(0), threading.Event()

    def handle(message):
        started.release()
        assert release.wait(WAIT_SECONDS)
    with work("t", "c", address(node), handler=handle, concurrency=2, max_in_flight=6) as running:
        for _ in range(2):
            assert started.acquire(timeout=WAIT_SECONDS)
        running.worker.stop()
        wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 2 and node.channel("t", "c")["depth"] == 8)
        assert running.thread.is_alive()
        release.set()
    assert running.worker.stats().finished == 2
    assert (node.channel("t", "c")["depth"], node.channel("t", "c")["in_flight_count"]) == (8, 0)


def test_stopping_does_not_wait_for_ever(daemon, work, caplog):
    node = daemon()
    publish(node, b"x")
    started, release = threading.Event(), threading.Event()

    def handle(message):
        started.set()
        release.wait(WAIT_SECONDS)
    with work("t", "c", address(node), handler=handle, stop_timeout=0.1):
        assert started.wait(WAIT_SECONDS)
    assert node.channel("t", "c")["depth"] == 1 and not node.channel("t", "c")["clients"]
    assert "handlers still at work after 0.1 s: 1; their messages are requeued" in caplog.text
    release.set()


def test_long_handlers_keep_connection_and_message(daemon, proxy, work):
    node = daemon()
    between = proxy(node)
    publish(node, b"long", b"next")
    found = []

    def handle(message):
        found.append(message.attempts)
        time.sleep(6)       # longer than two heartbeat intervals, and than the message timeout
    with work("t", "c", between.address, handler=handle, heartbeat_interval_ms=2000, msg_timeout_ms=3000):
        wait_until(lambda: settled(node))
    assert found == [1, 1] and between.connections == 1
    assert node.channel("t", "c")["timeout_count"] == 0


def test_middlewares_surround_the_handler(daemon, work):
    node = daemon()
    publish(node, b"x")
    seen = []

    def noting(name):
        @contextlib.contextmanager
        def middleware(message):
            seen.append(f"{name} {message.attempts}")
            try:
                yield
            except ValueError:
                seen.append(f"{name} failed")
                raise
            seen.append(f"{name} done")
        return middleware

    def handle(message):
        if message.attempts == 1:
            raise ValueError
    with work("t", "c", address(node), handler=handle, middlewares=[noting("outer"), noting("inner")], **QUICK):
        wait_until(lambda: settled(node))
    assert seen == ["outer 1", "inner 1", "inner failed", "outer failed", "outer 2", "inner 2", "inner done", "outer done"]


def test_json_bodies(daemon, work):
    node = daemon()
    publish(node, json.dumps({"amount": 7}).encode(), b"{", b"[" * 100_000)
    found, given_up = [], []
    with work("t", "c", address(node), handler=json_handler(lambda order, message: found.append((order, message.attempts))),
              on_give_up=lambda message, error: given_up.append(str(error))):
        wait_until(lambda: settled(node))
    assert found == [({"amount": 7}, 1)]
    assert len(given_up) == 2 and all(text.startswith("the body is not JSON: ") for text in given_up)


def test_json_bodies_for_coroutines(daemon):
    node = daemon()
    publish(node, b'{"amount": 7}')
    found = []

    @json_handler
    async def handle(order, message):
        await asyncio.sleep(0)
        found.append(order["amount"])
    assert handle.__name__ == "handle"
    with RunningLoop(aio.Worker("t", "c", address(node), handler=handle)):
        wait_until(lambda: settled(node))
    assert found == [7]


def test_errors_that_retries_do_not_help(daemon, work):
    node = daemon("--max-channel-consumers=1")
    first = node.connect().sub("t", "c")
    with pytest.raises(Refused, match="E_SUB_FAILED"), work("t", "c", address(node), handler=print) as running:
        running.thread.join(WAIT_SECONDS)
    first.close()
    with pytest.raises(LookupFailed), work("t", "c", nsqlookupd="127.0.0.1:9", handler=print) as running:
        running.thread.join(WAIT_SECONDS)


def test_by_lookup(daemon, lookupd, work):
    nodes = [daemon(), daemon()]
    for node in nodes:
        publish(node, *[b"x"] * 5)
    lookupd.ports = [node.tcp_port for node in nodes]
    with work("t", "c", nsqlookupd=lookupd.address, handler=lambda message: None) as running:
        wait_until(lambda: all(settled(node) for node in nodes))
        wait_until(lambda: running.worker.stats().finished == 10)
        assert [peer.ready for peer in running.worker.stats().consumer.connections] == [1, 1]
    with pytest.raises(RuntimeError, match="a worker runs once"):
        running._work()


@pytest.mark.parametrize("kind", [Worker, aio.Worker])
def test_mistakes(kind):
    where = "127.0.0.1:9"
    for options, text in (({"concurency": 2}, "Worker has no option 'concurency'; did you mean 'concurrency'"),
                          ({"concurrency": 0}, "concurrency is 0"), ({"requeue_delay": -1}, "requeue_delay is -1"),
                          ({"on_give_up": "dead"}, "on_give_up is 'dead'; it takes a function"), ({"middlewares": [1]}, "a middleware is 1"),
                          ({"max_attempts": 1.5}, "max_attempts is 1.5"), ({"tlss": True}, "did you mean 'tls'")):
        with pytest.raises((ValueError, TypeError), match=text):
            kind("t", "c", where, **options)
    worker = kind("t", "c", where)
    with pytest.raises(TypeError, match="the worker has no handler"):
        running = worker.run()
        if running is not None:
            asyncio.run(running)

    @worker
    def handle(message):
        pass
    assert handle.__name__ == "handle"


def test_a_coroutine_function_needs_a_loop():
    """A blocking worker would finish messages without handling them."""
    async def handle(message):
        pass
    with contextlib.closing(Worker("t", "c", "127.0.0.1:9", handler=handle)) as worker, pytest.raises(TypeError, match=r"use nsqc\.client\.aio\.Worker"):
        worker.run()


def test_a_daemon_that_is_killed(daemon, work):
    """kill -9 of a daemon with a log loses nothing. It may redeliver messages in flight, and messages finished in the
    daemon's last loop iteration (docs/guarantees.md), which were in flight before it."""
    node = daemon(kept(), "--topic-storage=log")
    bodies = [b"%d" % n for n in range(600)]
    publish(node, *bodies)
    found, kills, in_flight, one_at_a_time = [], [200, 400], 20, threading.Lock()

    def handle(message):
        found.append(message.body)
        with one_at_a_time:
            if kills and len(found) >= kills[0]:
                del kills[0]
                node.kill()
                node.start()
    with work("t", "c", address(node), handler=handle, concurrency=4, max_in_flight=in_flight, backoff=0.02, **QUICK):
        wait_until(lambda: not kills and len(set(found)) == 600 and settled(node))
    assert set(found) == set(bodies)
    assert len(found) - 600 <= 2 * 2 * in_flight


def test_slow_retries_do_not_delay_others(daemon, work):
    node = daemon()
    publish(node, b"bad", *(b"%d" % n for n in range(20)))
    found = []

    def handle(message):
        found.append(message.body)
        if message.body == b"bad":
            raise ValueError
    with work("t", "c", address(node), handler=handle, requeue_delay=60, max_slowdown=0.05):
        wait_until(lambda: len(found) == 21)
        wait_until(lambda: node.channel("t", "c")["deferred_count"] == 1)


class Mute(Exception):
    def __str__(self):
        return None


class Broken(Exception):
    def __str__(self):
        raise SystemExit(7)
    __repr__ = __str__


class Foreign(BaseException):
    pass


def endless():
    return endless()


def raises(error):
    raise error


FAULTS = {"mute": lambda: raises(Mute()), "broken": lambda: raises(Broken()), "foreign": lambda: raises(Foreign("no")), "endless": endless,
          "cancelled": lambda: raises(asyncio.CancelledError()), "generator": lambda: raises(GeneratorExit()), "memory": lambda: raises(MemoryError()),
          "iterator": lambda: next(iter(())), "group": lambda: raises(BaseExceptionGroup("all", [Foreign(), ValueError()]))}


@every_kind
def test_no_exception_of_a_handler_ends_the_worker(daemon, work, caplog):
    """The message is handled again, whatever the exception, its text included."""
    node = daemon()
    publish(node, *(name.encode() for name in FAULTS))
    found = []

    def handle(message):
        if message.attempts == 1:
            FAULTS[message.body.decode()]()
        found.append(message.body.decode())
    with work("t", "c", address(node), handler=handle, **QUICK) as running:
        wait_until(lambda: settled(node) and len(found) == len(FAULTS))
        assert running.thread.is_alive() and running.worker.stats().failed == len(FAULTS)
    assert sorted(found) == sorted(FAULTS) and "Mute (its __str__ fails)" in caplog.text


def test_no_exception_of_a_hook_ends_the_worker(daemon, work):
    """Nor one of a middleware, or of the application's logging."""
    node = daemon()
    publish(node, *(name.encode() for name in FAULTS))
    given_up, entered = [], []

    def on_give_up(message, error):
        if message.attempts == 1:
            FAULTS[message.body.decode()]()
        given_up.append(message.body.decode())

    @contextlib.contextmanager
    def middleware(message):
        if message.attempts == 2:
            entered.append(message)
            FAULTS[message.body.decode()]()
        yield

    class Failing(logging.Handler):
        def emit(self, record):
            raise OSError("the disk is full")

    def handle(message):
        raise GiveUp
    logging.getLogger("nsqc").addHandler(failing := Failing())
    try:
        with work("t", "c", address(node), handler=handle, on_give_up=on_give_up, middlewares=[middleware], **QUICK):
            wait_until(lambda: settled(node) and len(given_up) == len(FAULTS))
    finally:
        logging.getLogger("nsqc").removeHandler(failing)
    assert sorted(given_up) == sorted(FAULTS) and len(entered) == len(FAULTS)


@every_kind
@pytest.mark.parametrize(("where", "error"), [
    ("handler", BaseExceptionGroup("both", [ValueError(), SystemExit(5)])), ("middleware", KeyboardInterrupt()), ("on_give_up", SystemExit(5))],
    ids=["handler", "middleware", "on_give_up"])
def test_exceptions_that_end_the_worker(daemon, work, error, where):
    """They requeue their message at once."""
    node = daemon()
    publish(node, b"end", *[b"x"] * 3)

    @contextlib.contextmanager
    def middleware(message):
        if where == "middleware":
            raise error
        yield

    def handle(message):
        raise error if where == "handler" else GiveUp

    def on_give_up(message, cause):
        raise error
    with pytest.raises(type(error)), work("t", "c", address(node), handler=handle, on_give_up=on_give_up, middlewares=[middleware],
                                          **QUICK) as running:
        running.thread.join(WAIT_SECONDS)
    wait_until(lambda: node.channel("t", "c")["depth"] == 4)
    assert node.channel("t", "c")["in_flight_count"] == 0 and not node.channel("t", "c")["clients"]


def test_a_coroutine_that_exits_or_is_cancelled(daemon):
    """Without a thread between: an exception of the task itself, and its cancellation by others."""
    node = daemon()
    publish(node, b"cancel", b"exit")
    seen = []

    async def handle(message):
        seen.append((message.body, message.attempts))
        if message.body == b"exit":
            raise SystemExit(5)
        if message.attempts == 1:
            asyncio.current_task().cancel()
            await asyncio.sleep(WAIT_SECONDS)
    with pytest.raises(SystemExit), RunningLoop(aio.Worker("t", "c", address(node), handler=handle, concurrency=2, **QUICK)) as running:
        running.thread.join(WAIT_SECONDS)
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0 and not node.channel("t", "c")["clients"])
    assert seen.count((b"exit", 1)) == 1 and (b"cancel", 1) in seen
    wait_until(lambda: node.channel("t", "c")["depth"] == (1 if (b"cancel", 2) in seen else 2))


def test_giving_up_does_not_prolong_a_slowdown(daemon, work):
    """Also not in a group; nor if it is the message that tries the channel after a pause."""
    node = daemon()
    publish(node, b"bad", b"hopeless", b"group", b"good")
    found = []

    def handle(message):
        found.append(message.body)
        if message.body == b"bad" and message.attempts == 1:
            raise ValueError
        if message.body == b"hopeless":
            raise GiveUp
        if message.body == b"group":
            raise ExceptionGroup("of a task group", [GiveUp()])
    with work("t", "c", address(node), handler=handle, requeue_delay=0.3, max_slowdown=0.05) as running:
        wait_until(lambda: settled(node) and len(found) == 5)
        assert running.worker.stats().given_up == 2


def test_an_invalid_answer_of_a_handler_forgets_no_message(daemon, work):
    node = daemon()
    publish(node, b"-1", b"soon", b"1e30")
    wrong = {b"-1": -1, b"soon": "soon", b"1e30": 10**30}

    def handle(message):
        if message.attempts == 1:
            message.requeue(wrong[message.body])
    with work("t", "c", address(node), handler=handle, **QUICK) as running:
        wait_until(lambda: settled(node))
        assert running.worker.stats().failed == 3


def test_a_handler_that_closes_its_worker(daemon):
    node = daemon()
    publish(node, b"a", b"b")
    worker = Worker("t", "c", address(node), concurrency=2)
    with contextlib.closing(worker):
        worker(lambda message: worker.close())
        worker.run()
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0 and not node.channel("t", "c")["clients"])


# ---------------------------------------------------------------------- handlers that hang


def hanging(body: bytes = b"hang"):
    """A handler that waits for `released` with the first delivery of a message."""
    released, found = threading.Event(), []

    def handle(message):
        found.append((message.body, message.attempts))
        if message.body.startswith(body) and message.attempts == 1:
            released.wait(WAIT_SECONDS)
    return handle, released, found


def test_a_handler_that_hangs_is_replaced(daemon, work, caplog):
    """Its message is handled again, and a late end is reported."""
    node = daemon()
    publish(node, b"hang", b"good")
    handle, released, found = hanging()
    with work("t", "c", address(node), handler=handle, handler_timeout=0.3, **QUICK) as running:
        wait_until(lambda: (b"hang", 2) in found and settled(node))
        assert (b"good", 1) in found and running.worker.stats().failed == 1
        released.set()
        wait_until(lambda: running.worker.stats().stuck == running.worker.stats().running == 0)
    assert "HandlerTimeout: the handler has not returned within 0.3 s" in caplog.text
    assert "has been handled for 0." in caplog.text and "handler_timeout is 0.3 s" in caplog.text
    if work is not KINDS["asyncio-tasks"]:      # a coroutine is cancelled
        assert "has returned after" in caplog.text and "too late" in caplog.text and "in handle\n" in caplog.text
    assert node.channel("t", "c")["requeue_count"] == 1


def test_a_worker_whose_handlers_are_all_stuck_ends(daemon, caplog):
    node = daemon()
    publish(node, *[b"hang %d" % n for n in range(3)])
    for kind in (KINDS["blocking"], KINDS["asyncio-threads"]):
        handle, released, found = hanging()
        options = {"handler_timeout": 0.2, "max_stuck": 1, "concurrency": 2, "requeue_delay": 0.0, "max_slowdown": 0.0}

        def hang(message, handle=handle, released=released):
            handle(message)
            released.wait(WAIT_SECONDS)
        with pytest.raises(HandlersStuck, match="t/c: every handler is stuck: 3 have"), kind("t", "c", address(node), handler=hang, **options) as running:
            running.thread.join(WAIT_SECONDS)
        released.set()
        assert len(found) == 3
        wait_until(lambda: node.channel("t", "c")["depth"] == 3 and not node.channel("t", "c")["clients"])


def test_a_coroutine_that_hangs_is_cancelled(daemon, caplog):
    """Also if it ignores the cancellation: then it is stuck. The log shows where it waits, from the handler on."""
    node = daemon()
    publish(node, b"hang", b"ignore", b"good")
    seen, released = [], threading.Event()

    async def handle(message):
        seen.append((message.body, message.attempts))
        while message.attempts == 1 and message.body != b"good":
            try:
                await asyncio.sleep(WAIT_SECONDS)
            except asyncio.CancelledError:
                if message.body == b"hang" or released.is_set():
                    raise
    with RunningLoop(aio.Worker("t", "c", address(node), handler=handle, handler_timeout=0.2, max_stuck=1, **QUICK)) as running:
        wait_until(lambda: settled(node) and len(seen) == 5)
        assert running.worker.stats().stuck == 1 and running.thread.is_alive()
        released.set()
    assert "in handle\n    await asyncio.sleep(WAIT_SECONDS)" in caplog.text and "run_until_complete" not in caplog.text


def test_a_timeout_gives_a_message_up(daemon, work):
    node = daemon()
    publish(node, b"hang")
    handle, released, _ = hanging()
    given_up = []
    with work("t", "c", address(node), handler=handle, handler_timeout=0.2, max_attempts=1,
              on_give_up=lambda message, error: given_up.append((message.body, type(error))), **QUICK):
        wait_until(lambda: settled(node) and given_up)
        released.set()
    assert given_up == [(b"hang", HandlerTimeout)]


def test_a_blocked_event_loop_is_reported(daemon, caplog):
    """With the place that blocks it, while it does."""
    node = daemon()
    publish(node, b"x")

    async def handle(message):
        wait_until(lambda: "has blocked the event loop for" in caplog.text)
    with RunningLoop(aio.Worker("t", "c", address(node), handler=handle, **QUICK)):
        wait_until(lambda: "the event loop runs again after" in caplog.text)
    assert "in handle\n" in caplog.text


def test_late_answers_are_reported(daemon, work, caplog):
    """Of messages that nsqd has timed out: both calls return, and nobody would know."""
    node = daemon("--msg-timeout=300ms")
    publish(node, b"hang")
    handle, released, found = hanging()
    with work("t", "c", address(node), handler=handle, concurrency=2, touch_limit=0.0) as running:
        wait_until(lambda: len(found) == 2)
        released.set()
        wait_until(lambda: running.worker.stats().finished == 2 and "messages of t/c answered too late: 1, such as " in caplog.text)


# ---------------------------------------------------------------------- batches


def test_batches(daemon, work):
    """One call and one answer each; a handler may answer some messages itself."""
    node = daemon()
    publish(node, *(b"%d" % n for n in range(10)))
    calls = []

    def handle(messages):
        calls.append([message.body for message in messages])
        for message in messages:
            if message.body == b"3" and message.attempts == 1:
                message.requeue()
    with work("t", "c", address(node), handler=handle, batch=10, batch_timeout=WAIT_SECONDS, max_slowdown=0.0) as running:
        wait_until(lambda: running.worker.stats().finished == 10)
        assert len(calls) == 1 and sorted(calls[0]) == [b"%d" % n for n in range(10)]
        publish(node, *(b"%d" % n for n in range(10, 19)))
        wait_until(lambda: settled(node))
        assert running.worker.stats().consumer.received == 20
    assert len(calls) == 2 and b"3" in calls[1]


def test_a_batch_that_fails_is_requeued(daemon, work):
    """Without its answered messages; and a batch does not wait for more than batch_timeout."""
    node = daemon()
    publish(node, b"done", b"a", b"b")
    calls = []

    def handle(messages):
        calls.append(sorted(message.body for message in messages))
        for message in messages:
            if message.body == b"done":
                message.finish()
                raise ValueError("no")
    with work("t", "c", address(node), handler=handle, batch=100, batch_timeout=0.2, **QUICK) as running:
        wait_until(lambda: settled(node) and running.worker.stats().finished == 2)
    assert calls[0] == [b"a", b"b", b"done"] and sorted(body for call in calls[1:] for body in call) == [b"a", b"b"]


def test_a_worker_that_stops_after_some_messages(daemon, work):
    node = daemon()
    publish(node, *[b"x"] * 5)
    with work("t", "c", address(node), handler=lambda message: None, max_messages=3) as running:
        running.thread.join(WAIT_SECONDS)
        assert not running.thread.is_alive() and running.worker.stats().finished == 3
    wait_until(lambda: node.channel("t", "c")["depth"] == 2)
