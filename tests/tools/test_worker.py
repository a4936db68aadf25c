"""nsqc worker: a function, a coroutine function or a Worker of a module, as a process that is stopped and killed."""

import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import pytest

from nsqc.client import Producer
from nsqc.client.handling import Settings
from nsqc.options.option import Kind, S
from nsqc.tools.worker import OPTIONS
from tests.publishing.lossy import Lossy
from tests.rules.letters import lines
from tests.rules.support import set_topic_rule
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.tools.conftest import ENV, Tool

# The handlers record their work in files, a line each, written before they return.
MODULE = '''
import asyncio, os, sys, time
from nsqc.client import GiveUp, Worker, aio

def note(message):
    with open("handled", "ab", 0) as file:
        file.write(message.body + b"\\n")

def handle(message):
    note(message)
    if message.body == b"bad":
        raise ValueError("\\x1b[31mno")

def slow(message):
    note(message)
    while not os.path.exists("release"):
        time.sleep(0.01)
    with open("returned", "ab", 0) as file:
        file.write(message.body + b"\\n")

def hang(message):
    note(message)
    time.sleep(1000)

async def stubborn(message):
    note(message)
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass

async def coroutine(message):
    await asyncio.sleep(0)
    handle(message)

async def slow_coroutine(message):
    await asyncio.to_thread(slow, message)

async def blocking(message):
    note(message)
    time.sleep(1000)

def slow_batch(messages):
    slow(messages[0])

async def slow_batch_coroutine(messages):
    await slow_coroutine(messages[0])

def leave(message):
    sys.exit(9)

async def leave_coroutine(message):
    sys.exit(9)

def hopeless(message):
    raise GiveUp("never")

worker = Worker("t", "c", os.environ.get("NSQD", "127.0.0.1:9"), handler=handle, concurrency=2)
looping = aio.Worker("t", "c", os.environ.get("NSQD", "127.0.0.1:9"), handler=coroutine)
freezing = aio.Worker("t", "c", os.environ.get("NSQD", "127.0.0.1:9"), handler=blocking, handler_timeout=0.2)
number = 7
'''


class Place:
    """A folder with the module, and a daemon."""

    def __init__(self, folder, node):
        self.folder, self.node = folder, node
        self.address = f"127.0.0.1:{node.tcp_port}"
        self.running = []
        (folder / "handlers.py").write_text(MODULE)

    def start(self, name: str, *words: str) -> Tool:
        self.running.append(Tool([sys.executable, "-m", "nsqc", "worker", f"handlers:{name}", *words], self.folder, cwd=self.folder,
                                 env={**ENV, "NSQD": self.address}))
        return self.running[-1]

    def handling(self, name: str, *words: str) -> Tool:
        return self.start(name, "t", "c", "--nsqd", self.address, *words)

    def publish(self, *bodies: bytes) -> None:
        with Producer(self.address) as producer:
            producer.publish_many("t", bodies)

    def lines(self, name: str = "handled") -> list[bytes]:
        path = self.folder / name
        return path.read_bytes().splitlines() if path.exists() else []

    def settled(self) -> bool:
        return any((found["depth"], found["in_flight_count"], found["deferred_count"]) == (0, 0, 0)
                   for found in self.node.stats("t")["channels"])


@pytest.fixture
def place(daemon, tmp_path):
    folder = tmp_path / "app"
    folder.mkdir()
    found = Place(folder, daemon("--msg-timeout=2s"))
    yield found
    for tool in found.running:
        if tool.process.poll() is None:
            tool.process.kill()
            tool.process.wait()


@pytest.mark.parametrize("name", ["handle", "coroutine"])
def test_a_function(place, name):
    place.publish(*(b"%d" % n for n in range(50)))
    tool = place.handling(name, "--concurrency", "4", "--verbose")
    wait_until(place.settled)
    assert tool.stop(signal.SIGTERM) == 0
    assert sorted(place.lines()) == sorted(b"%d" % n for n in range(50))
    assert tool.err.count(" finished after ") == 50 and tool.err.endswith("t/c: stopped\n")


@pytest.mark.parametrize("name", ["worker", "looping"])
def test_a_worker_of_the_module(place, name):
    place.publish(b"x", b"y")
    tool = place.start(name)
    wait_until(place.settled)
    assert tool.stop(signal.SIGINT) == 0 and sorted(place.lines()) == [b"x", b"y"]


@pytest.mark.parametrize("name", ["slow", "slow_coroutine"])
def test_sigterm_waits_for_handlers(place, name):
    place.publish(*[b"x"] * 5)
    tool = place.handling(name, "--concurrency", "2", "--max-in-flight", "4")
    wait_until(lambda: len(place.lines()) == 2)
    tool.process.send_signal(signal.SIGTERM)
    tool.says("stopping, handlers at work: 2")
    wait_until(lambda: place.node.channel("t", "c")["depth"] == 3)
    (place.folder / "release").touch()
    assert tool.wait() == 0 and len(place.lines("returned")) == 2
    assert (place.node.channel("t", "c")["depth"], place.node.channel("t", "c")["in_flight_count"]) == (3, 0)


@pytest.mark.parametrize("name", ["slow_batch", "slow_batch_coroutine"])
def test_sigterm_finishes_one_batch_and_returns_the_next(place, name):
    place.publish(*[b"x"] * 5)
    tool = place.handling(name, "--batch", "3", "--batch-timeout", "10m", "--max-in-flight", "5")
    wait_until(lambda: len(place.lines()) == 1 and place.node.channel("t", "c")["in_flight_count"] == 5)
    tool.process.send_signal(signal.SIGTERM)
    tool.says("stopping, handlers at work: 1")
    (place.folder / "release").touch()
    assert tool.wait() == 0 and len(place.lines("returned")) == 1
    wait_until(lambda: (place.node.channel("t", "c")["depth"], place.node.channel("t", "c")["in_flight_count"]) == (2, 0))


@pytest.mark.parametrize("name", ["hang", "stubborn"])
def test_stuck_handlers_end_the_process(place, name):
    """A service manager starts another one; the messages are back at once."""
    place.publish(*[b"x"] * 3)
    tool = place.handling(name, "--handler-timeout", "200ms", "--max-stuck", "1", "--requeue-delay", "0s", "--max-slowdown", "0s")
    assert tool.wait() == 1 and "every handler is stuck: 2 have not returned within 0.2 s" in tool.err
    wait_until(lambda: place.node.channel("t", "c")["depth"] == 3)
    assert len(place.lines()) == 2


@pytest.mark.parametrize("name", ["blocking", "freezing"])
def test_a_coroutine_that_blocks_its_loop_ends_the_process(place, name):
    """Nothing can cancel it, and the worker would keep its connection alive."""
    place.publish(b"x")
    tool = place.start(name) if name == "freezing" else place.handling(name, "--handler-timeout", "200ms")
    assert tool.wait() == 1 and "longer than handler_timeout: the worker cannot cancel it" in tool.err and "in blocking\n" in tool.err
    wait_until(lambda: place.node.channel("t", "c")["depth"] == 1 and not place.node.channel("t", "c")["clients"])


def test_it_ends_after_some_messages(place):
    place.publish(*[b"x"] * 5)
    tool = place.handling("handle", "--max-messages", "3")
    assert tool.wait() == 0 and len(place.lines()) == 3
    assert place.node.channel("t", "c")["depth"] == 2


def test_all_options_of_a_worker_are_options():
    """With the same defaults, except for times, which the tool has in nanoseconds."""
    declared = {option.name.replace("-", "_"): option for option in OPTIONS}
    for name, default in Settings._field_defaults.items():
        if name not in ("on_give_up", "middlewares"):
            option = declared[name]
            assert (option.default / S if option.kind is Kind.DURATION else option.default) == default, name


def test_reload(place):
    """Also after a mistake in the module, and the exit code is that of the handlers' process."""
    tool = place.handling("handle", "--reload")
    tool.says("working, 1 at a time")
    (place.folder / "handlers.py").write_text("no Python")
    tool.says("SyntaxError")
    (place.folder / "handlers.py").write_text("def handle(message): open('again', 'wb').write(message.body)")
    place.publish(b"x")
    wait_until(lambda: place.lines("again") == [b"x"] and place.settled())
    assert tool.stop(signal.SIGTERM) == 0 and tool.err.endswith("t/c: stopped\n")


def test_a_second_signal_does_not_wait(place):
    place.publish(b"x")
    tool = place.handling("slow")
    wait_until(lambda: len(place.lines()) == 1)
    tool.process.send_signal(signal.SIGTERM)
    tool.says("stopping, handlers at work: 1")
    assert tool.stop(signal.SIGTERM) != 0


def test_failures_back_off_and_are_logged(place):
    place.publish(b"bad")
    tool = place.handling("handle", "--requeue-delay", "10ms", "--max-slowdown", "0s", "--max-attempts", "2", "--dead-letters", "dead")
    wait_until(lambda: "dead" in [topic["topic_name"] for topic in place.node.stats()["topics"]] and place.settled())
    assert tool.stop(signal.SIGTERM) == 0
    assert place.node.stats("dead")["depth"] == 1 and place.lines() == [b"bad"] * 2
    assert "failed at attempt 1, again in 0.0 s: ValueError: \\x1b[31mno\nTraceback" in tool.err and "\x1b" not in tool.err
    assert "given up at attempt 2: ValueError" in tool.err


class Plain(Lossy):
    """A proxy by which the node seems to be one of nsqd's, which does not know DEAD."""

    def _down(self, client, server):
        with suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data.replace(b'"dead_letters":true', b'"dead_letters":null'))
            client.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("name", ["handle", "coroutine"])
@pytest.mark.parametrize("other", [False, True])
def test_dead_letters(place, name, other):
    """From nsqc they have their origin and the exception's type; with nsqd behind it the worker publishes the body."""
    place.node.post("/topic/create?topic=dead")
    set_topic_rule(place.node, "dead", storage="log")
    proxy = Plain(place.node.tcp_port, 0) if other else None
    place.publish(b"bad")
    if proxy is not None:
        place.address = proxy.address
    tool = place.handling(name, "--max-slowdown", "0s", "--max-attempts", "1", "--dead-letters", "dead")
    wait_until(lambda: place.node.stats("dead")["message_count"] == 1 and place.settled())
    assert tool.stop(signal.SIGTERM) == 0
    (letter,) = lines(place.node, "dead")
    assert letter["body"] == "bad" and letter.get("origin", {}).get("reason") == (None if other else "ValueError")
    assert place.node.channel("t", "c").get("dead_letter_count", 0) == (0 if other else 1)
    if proxy is not None:
        proxy.close()


def test_dead_letters_that_the_node_refuses(place):
    """The message stays in the channel, and the log says why."""
    place.publish(b"bad")
    tool = place.handling("handle", "--max-slowdown", "0s", "--max-attempts", "1", "--dead-letters", "t")
    wait_until(lambda: len(place.lines()) == 1)
    tool.says("failed dead letters of topic t come back to t; nsqd delivers the message of t/c again after its timeout")
    assert tool.stop(signal.SIGTERM) == 0 and not place.settled()


def test_log_as_json(place):
    place.publish(b"x")
    tool = place.handling("hopeless", "--log-format", "json")
    wait_until(place.settled)
    assert tool.stop(signal.SIGTERM) == 0
    lines = [json.loads(line) for line in tool.err.splitlines()]
    (found,) = [line for line in lines if line.get("outcome") == "given_up"]
    assert (found["topic"], found["channel"], found["attempts"], found["level"], found["logger"]) == ("t", "c", 1, "error", "nsqc.worker")
    assert "GiveUp: never" in found["text"] and "Traceback" in found["exception"] and found["seconds"] >= 0


@pytest.mark.parametrize("words,text", [
    (("handlers", "t", "c"), "'handlers' is not MODULE:NAME, such as orders.billing:handle"),
    (("nothing:x", "t", "c"), "no module 'nothing' in "), (("handlers.x:y", "t", "c"), "no module 'handlers.x' in "),
    (("handlers:handel", "t", "c"), "module 'handlers' has no 'handel', did you mean 'handle'?"),
    (("handlers:number", "t", "c"), "handlers:number is of type int: neither a function nor a Worker"),
    (("broken:x", "t", "c"), "cannot import module 'broken': ZeroDivisionError: division by zero"),
    (("handlers:handle", "t"), "channel missing: nsqc worker MODULE:NAME TOPIC CHANNEL"),
    (("handlers:handle", "t t", "c"), "topic 't t': a name is"),
    (("handlers:handle", "t", "c", "--dead-letters", "d d"), "topic 'd d': a name is"),
    (("handlers:worker", "t", "c"), "handlers:worker is a Worker, which has its own topic, channel and options: TOPIC does not apply"),
    (("handlers:worker", "--concurrency", "2"), "--concurrency does not apply"),
])
def test_mistakes(place, words, text):
    (place.folder / "broken.py").write_text("1 / 0\n")
    done = subprocess.run([sys.executable, "-m", "nsqc", "worker", *words], cwd=place.folder, env=ENV, capture_output=True, text=True,
                          timeout=WAIT_SECONDS)
    assert text in done.stderr.splitlines()[-1] and done.returncode in (1, 2)
    assert "Traceback" not in done.stderr or words[0] == "broken:x"


@pytest.mark.parametrize("name", ["handle", "coroutine", "worker", "looping"])
def test_a_permanent_error_has_its_own_exit_code(place, name):
    place.address = f"127.0.0.1:{place.node.http_port}"
    tool = place.start(name) if name in ("worker", "looping") else place.handling(name)
    assert tool.wait() == 5
    assert tool.err.splitlines()[-1].startswith(f"nsqc worker: {place.address}: this is nsqd's HTTP port; its TCP port is {place.node.tcp_port}") and "Traceback" not in tool.err


@pytest.mark.parametrize("name", ["leave", "leave_coroutine"])
def test_a_handler_that_exits(place, name):
    place.publish(b"x")
    tool = place.handling(name)
    assert tool.wait() == 9 and "Traceback" not in tool.err
    assert place.node.channel("t", "c")["depth"] == 1 and place.node.channel("t", "c")["requeue_count"] >= 1


def test_processes_that_are_killed(place):
    """kill -9 of the worker at random moments: nothing is lost, and at most the messages in flight come twice."""
    kills, in_flight = 8, 10
    chance = random.Random(3)
    for number in range(kills):
        place.publish(*(b"%d %d" % (number, n) for n in range(500)))
        tool = place.handling("handle" if number % 2 else "coroutine", "--concurrency", "4", "--max-in-flight", str(in_flight))
        enough = len(place.lines()) + chance.randrange(1, 300)
        wait_until(lambda enough=enough: len(place.lines()) >= enough)
        time.sleep(chance.random() / 50)
        tool.process.kill()
        tool.process.wait()
    tool = place.handling("handle", "--concurrency", "4", "--max-in-flight", str(in_flight))
    tool.says("working, 4 at a time")       # the one before may have left nothing to handle
    wait_until(place.settled)
    assert tool.stop(signal.SIGTERM) == 0
    counts = Counter(place.lines())
    assert counts.keys() == {b"%d %d" % (number, n) for number in range(kills) for n in range(500)}
    again = sum(counts.values()) - len(counts)
    assert again <= kills * in_flight, again
