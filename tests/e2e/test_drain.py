"""A draining node: messages in flight are finished, nothing else moves, and waiting messages are there afterwards."""

import http.client
import json
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

import pytest

from nsqc.httpd.admin import _duration
from nsqc.httpd.reply import ApiError
from tests.support.daemon import Client, Daemon, batch, wait_until
from tests.support.lookupd import LookupServer
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import make_certificates

KINDS = {"memory": (), "disk": ("--mem-queue-size=0",), "log": ("--topic-storage=log",)}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    node = Daemon(tmp_path_factory.mktemp("drained") / "data")
    yield node
    assert node.stop() == 0


@pytest.fixture
def node(running):
    """One daemon for all tests that keep it; each finds it without topics, and serving."""
    yield running
    drain(running, method="DELETE")
    for topic in running.stats()["topics"]:
        running.post(f"/topic/delete?topic={topic['topic_name']}")


def drain(node: Daemon, query: str = "", method: str = "POST") -> dict:
    status, body = node.http(method, f"/drain{query}")
    assert status == 200, body
    return json.loads(body)


def state(node: Daemon) -> str:
    return drain(node, method="GET")["state"]


def ended(node: Daemon) -> int:
    """The exit code of a daemon that ends on its own."""
    return node.process.wait(WAIT_SECONDS)


def left(node: Daemon, count: int) -> dict[bytes, int]:
    """Receives this many messages with a new consumer, and no other: attempts by body."""
    consumer = node.connect().sub("t", "c", min(count + 1, 2500))
    messages = consumer.messages(count, finish=True)
    assert consumer.quiet(0.1)
    assert len({message.body for message in messages}) == count, "a message came twice"
    return {message.body: message.attempts for message in messages}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_flight_is_finished_and_the_rest_is_kept(daemon, kind):
    node = daemon(*KINDS[kind])
    bodies = [b"m%03d" % n for n in range(100)]
    consumer = node.connect().sub("t", "c")
    node.connect().pub("t", *bodies)
    consumer.command("RDY 5")
    taken = consumer.messages(5)
    node.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: state(node) == "draining")
    for message in taken[:4]:
        consumer.fin(message)
    wait_until(lambda: drain(node, method="GET")["in_flight"] == 1)
    assert node.process.poll() is None
    assert consumer.quiet(0.05), "nothing new is delivered"
    consumer.fin(taken[4])
    assert ended(node) == 0
    assert consumer.frame() is None
    wait_until(lambda: "DRAIN: nothing is in flight any more" in node.log)
    node.start(*KINDS[kind])
    assert left(node, 95) == dict.fromkeys(bodies[5:], 1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finished_in_time_comes_again(daemon, kind):
    node = daemon(*KINDS[kind])
    consumer = node.connect().sub("t", "c")
    node.connect().pub("t", b"a", b"b", b"c")
    consumer.command("RDY 2")
    first, _ = consumer.messages(2)
    consumer.fin(first)
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 2)
    consumer.messages(1)
    drain(node, "?timeout=100ms")
    assert ended(node) == 0
    wait_until(lambda: "DRAIN: the time is over, 2 messages are still in flight to 1 consumers" in node.log)
    node.start(*KINDS[kind])
    assert left(node, 2) == {b"b": 2, b"c": 2}


@pytest.mark.parametrize("kind", KINDS)
def test_a_busy_consumer_gets_nothing_twice(daemon, kind):
    """The consumer finishes at full speed, while a publisher is refused midway."""
    node = daemon(*KINDS[kind])
    consumer, publisher = node.connect().sub("t", "c", 50), node.connect()
    finished: list[bytes] = []
    accepted: list[bytes] = []

    def consume():
        while (frame := consumer.frame(WAIT_SECONDS)) is not None:
            kind, data = frame
            if kind == 2:
                finished.append(data[26:])
                consumer.send(b"FIN " + data[10:26] + b"\n")

    def publish():
        for number in range(100_000):
            bodies = [b"%d.%d" % (number, n) for n in range(20)]
            publisher.command("MPUB t", batch(*bodies))
            if (answer := publisher.frame(WAIT_SECONDS)) != (0, b"OK"):
                assert answer in ((1, b"E_MPUB_FAILED MPUB failed draining"), None)
                return
            accepted.extend(bodies)

    threads = [threading.Thread(target=work) for work in (consume, publish)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(finished) > 2000)
    drain(node, "?timeout=30s")
    assert ended(node) == 0
    for thread in threads:
        thread.join()
    wait_until(lambda: "DRAIN: nothing is in flight any more" in node.log)
    assert len(set(finished)) == len(finished)
    node.start(*KINDS[kind])
    assert left(node, len(accepted) - len(finished)).keys() == set(accepted) - set(finished)


# ---------------------------------------------------------------------- refusals


def refused(node: Daemon, line: str, body: bytes | None = None) -> bytes:
    """The error of a command, which ends the connection."""
    client = node.connect()
    client.command(line, body)
    kind, text = client.frame()
    assert kind == 1
    assert client.frame() is None
    return text


def test_publishes_and_subscriptions_are_refused(node):
    node.connect().pub("t", b"before")
    drain(node, "?keep=true")
    for topic in ("t", "new"):
        assert refused(node, f"PUB {topic}", b"x") == b"E_PUB_FAILED PUB failed draining"
        assert refused(node, f"MPUB {topic}", batch(b"x")) == b"E_MPUB_FAILED MPUB failed draining"
        assert refused(node, f"DPUB {topic} 10", b"x") == b"E_DPUB_FAILED DPUB failed draining"
        assert refused(node, f"SUB {topic} c") == b"E_SUB_FAILED SUB failed draining"
        for path in ("pub?topic=", "pub?defer=5&topic=", "mpub?topic=", "mpub?binary=true&topic="):
            body = batch(b"x") if "binary" in path else b"x"
            assert node.http("POST", f"/{path}{topic}", body) == (503, b'{"message":"DRAINING"}')
    # Errors of the request itself still come first.
    assert refused(node, "PUB in&valid", b"x").startswith(b"E_BAD_TOPIC ")
    assert node.http("POST", "/pub?topic=in%26valid", b"x") == (400, b'{"message":"INVALID_TOPIC"}')
    assert [topic["topic_name"] for topic in node.stats()["topics"]] == ["t"]
    assert node.stats("t")["depth"] == 1


def test_what_has_begun_to_arrive_is_refused_whole(node):
    large = bytes(300_000)
    clients = [node.connect() for _ in range(3)]
    clients[0].send(b"PUB t\n" + struct.pack(">i", len(large)) + large[:200_000])       # read into its message
    clients[1].send(b"PUB t\n" + struct.pack(">i", 4) + b"ab")
    whole = batch(large, large)
    clients[2].send(b"MPUB t\n" + struct.pack(">i", len(whole)) + whole[:400_000])
    web = socket.create_connection(("127.0.0.1", node.http_port), WAIT_SECONDS)
    web.sendall(b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
    wait_until(lambda: len(node.stats()["topics"]) == 1)    # the line of MPUB has been read
    drain(node, "?keep=true")
    clients[0].send(large[200_000:])
    clients[1].send(b"cd")
    clients[2].send(whole[400_000:])
    web.sendall(b"cd")
    assert [client.frame() for client in clients] == [
        (1, b"E_PUB_FAILED PUB failed draining"), (1, b"E_PUB_FAILED PUB failed draining"),
        (1, b"E_MPUB_FAILED MPUB failed draining")]
    assert b" 503 " in web.recv(1000)
    assert node.stats("t")["depth"] == 0


def test_a_remembered_head_is_refused_too(node):
    """The second and later publishes of a kept connection need no parser."""
    web = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=WAIT_SECONDS)

    def publish():
        web.request("POST", "/pub?topic=t", b"x")
        answer = web.getresponse()
        return answer.status, answer.read()

    assert [publish() for _ in range(3)] == [(200, b"OK")] * 3
    drain(node, "?keep=true")
    assert [publish() for _ in range(3)] == [(503, b'{"message":"DRAINING"}')] * 3
    drain(node, method="DELETE")
    assert [publish() for _ in range(3)] == [(200, b"OK")] * 3
    assert node.stats("t")["depth"] == 6


# ---------------------------------------------------------------------- kept, and undone


@pytest.mark.parametrize("kind", KINDS)
def test_kept_and_undone(daemon, kind):
    node = daemon(*KINDS[kind])
    consumer = node.connect().sub("t", "c")
    node.connect().pub("t", b"a", b"b", b"c", b"d")
    consumer.command("RDY 1")
    first = consumer.message()
    answer = drain(node, "?keep=true&timeout=1h")
    assert {**answer, "since": 0, "deadline": 0} == {
        "state": "draining", "keep": True, "in_flight": 1, "consumers": 1, "since": 0, "deadline": 0}
    assert 3590 < answer["deadline"] - answer["since"] < 3610
    assert node.http("GET", "/readyz") == (503, b'{"ready":false,"reasons":["draining"]}')
    assert node.http("GET", "/livez")[0] == 200
    assert node.http("GET", "/ping") == (200, b"OK")
    consumer.send(b"REQ " + first.id + b" 0\n")
    wait_until(lambda: state(node) == "drained")
    consumer.command("RDY 4")
    assert consumer.quiet(0.05)
    assert drain(node, method="DELETE") == {"state": "serving", "keep": False, "in_flight": 0, "consumers": 0,
                                            "since": None, "deadline": None}
    messages = consumer.messages(4, finish=True)
    assert {message.body: message.attempts for message in messages} == {b"a": 2, b"b": 1, b"c": 1, b"d": 1}
    node.connect().pub("t", b"e")
    assert consumer.message().body == b"e"
    assert node.http("GET", "/readyz")[0] == 200
    assert drain(node, method="DELETE")["state"] == "serving"


def test_what_comes_due_waits(node):
    """Deferred messages, requeues with a delay, and messages that timed out."""
    consumer = node.connect()
    consumer.sub("t", "c", 2)
    publisher = node.connect()
    publisher.pub("t", b"requeued", b"taken")
    messages = {message.body: message for message in consumer.messages(2)}
    publisher.ok("DPUB t 50", b"deferred")
    drain(node, "?keep=true")
    consumer.send(b"REQ " + messages[b"requeued"].id + b" 50\n")
    wait_until(lambda: (node.channel("t", "c")["depth"], node.channel("t", "c")["deferred_count"]) == (2, 0))
    consumer.send(b"TOUCH " + messages[b"taken"].id + b"\n")
    assert consumer.quiet(0.05)
    assert drain(node, method="GET")["in_flight"] == 1
    consumer.fin(messages[b"taken"])
    wait_until(lambda: state(node) == "drained")
    drain(node, method="DELETE")
    assert {message.body for message in consumer.messages(2)} == {b"deferred", b"requeued"}


def test_messages_that_time_out_are_not_waited_for(daemon):
    node = daemon("--msg-timeout=300ms")
    consumer = node.connect().sub("t", "c", 1)
    node.connect().pub("t", b"x")
    consumer.message()
    drain(node, "?timeout=1h")
    assert ended(node) == 0
    wait_until(lambda: "DRAIN: nothing is in flight any more" in node.log)
    node.start()
    assert left(node, 1) == {b"x": 2}


def test_clients_that_have_left_are_not_waited_for(node):
    consumer = node.connect().sub("t", "c", 1)
    node.connect().pub("t", b"x")
    consumer.message()
    drain(node, "?timeout=1h&keep=true")
    assert state(node) == "draining"
    consumer.close()
    wait_until(lambda: state(node) == "drained")
    assert node.channel("t", "c")["in_flight_count"] == 1


def test_pauses_keep_their_meaning(node):
    consumer = node.connect().sub("t", "c", 1)
    node.post("/channel/pause?topic=t&channel=c")
    node.connect().pub("t", b"x")
    drain(node, "?keep=true")
    drain(node, method="DELETE")
    assert consumer.quiet(0.05)
    drain(node, "?keep=true")
    node.post("/channel/unpause?topic=t&channel=c")
    assert consumer.quiet(0.05)
    drain(node, method="DELETE")
    assert consumer.message().body == b"x"


def test_channels_made_meanwhile_deliver_afterwards(node):
    node.connect().pub("t", b"x")
    drain(node, "?keep=true")
    node.post("/channel/create?topic=t&channel=c")
    drain(node, method="DELETE")
    assert left(node, 1) == {b"x": 1}


# ---------------------------------------------------------------------- end of a drain


def test_without_consumers_it_ends_at_once(daemon):
    node = daemon()
    node.connect().pub("t", b"x")
    node.process.send_signal(signal.SIGUSR1)
    assert ended(node) == 0


def held(daemon, *flags) -> tuple[Daemon, Client]:
    """A daemon with a long drain: its consumer finishes nothing."""
    node = daemon(*flags)
    consumer = node.connect().sub("t", "c", 1)
    node.connect().pub("t", b"x")
    consumer.message()
    drain(node, "?timeout=1h")
    return node, consumer


def test_the_latest_call_counts(daemon):
    node, _ = held(daemon)
    before = drain(node, method="GET")
    # A signal, and a call without a time-out, leave the deadline unchanged.
    node.process.send_signal(signal.SIGUSR1)
    assert abs(drain(node)["deadline"] - before["deadline"]) < 0.1
    assert drain(node, "?keep=1&timeout=0")["keep"]
    wait_until(lambda: state(node) == "drained")
    assert drain(node, method="GET")["in_flight"] == 1
    assert node.process.poll() is None
    node.process.send_signal(signal.SIGUSR1)
    assert ended(node) == 0


def test_a_stop_ends_a_drain(daemon):
    node, _ = held(daemon)
    assert node.stop() == 0
    node.start()
    assert left(node, 1) == {b"x": 2}


def test_no_time_at_all(daemon):
    node = daemon()
    consumer = node.connect().sub("t", "c", 1)
    node.connect().pub("t", b"x")
    consumer.message()
    assert drain(node, "?timeout=0")["state"] == "draining"
    assert ended(node) == 0
    node.start()
    assert left(node, 1) == {b"x": 2}


def test_signals_in_any_order(daemon):
    node = daemon()
    for number in (signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR1):
        node.process.send_signal(number)
    assert ended(node) == 0


def test_a_signal_during_the_start_stops_it(tmp_path):
    for part in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "nsqc", "serve", "--http-address=127.0.0.1:0", "--tcp-address=127.0.0.1:0",
             f"--data-path={tmp_path}"], stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda process=process: catches_drains(process.pid))
            time.sleep(part * 0.1)
            process.send_signal(signal.SIGUSR1)
            assert process.wait(WAIT_SECONDS) == 0
        finally:
            process.kill()
            process.wait()


def catches_drains(pid: int) -> bool:
    with open(f"/proc/{pid}/status") as status:
        caught = next(line.split()[1] for line in status if line.startswith("SigCgt"))
    return bool(int(caught, 16) & 1 << signal.SIGUSR1 - 1)


def test_long_polls_end_with_the_daemon(daemon):
    node = daemon("--topic-storage=log")
    node.post("/topic/create?topic=t")
    web = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=WAIT_SECONDS)
    web.request("GET", "/topic/read?topic=t&wait_ms=60000")
    wait_until(lambda: drain(node, "?keep=true")["state"] == "drained")
    drain(node, "?timeout=0&keep=false")
    assert web.getresponse().status == 200
    assert ended(node) == 0


SLOW_IMPORT = """
import sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "nsqc.httpd.logs":
            time.sleep(0.5)

sys.meta_path.insert(0, Slow())
from nsqc.cli import main
main()
"""


def test_a_long_poll_whose_handler_is_still_being_imported_ends_with_the_daemon(daemon):
    node = daemon("--topic-storage=log", command=(sys.executable, "-c", SLOW_IMPORT, "serve"))
    node.post("/topic/create?topic=t")
    web = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=WAIT_SECONDS)
    web.request("GET", "/topic/read?topic=t&wait_ms=60000")
    assert node.http("GET", "/ping")[0] == 200      # by now the request has been read
    assert node.stop() == 0
    assert web.getresponse().status == 200


def test_consumers_over_tls(daemon, tmp_path):
    folder = make_certificates(tmp_path)
    node = daemon(f"--tls-cert={folder / 'server.pem'}", f"--tls-key={folder / 'server.key'}")
    consumer = node.connect()
    consumer.command("IDENTIFY", json.dumps({"tls_v1": True, "feature_negotiation": True}).encode())
    assert json.loads(consumer.frame()[1])["tls_v1"]
    context = ssl.create_default_context(cafile=str(folder / "server.pem"))
    secured = Client(context.wrap_socket(consumer.sock, server_hostname="localhost"))
    assert secured.frame() == (0, b"OK")
    secured.sub("t", "c", 1)
    node.connect().pub("t", b"a", b"b")
    message = secured.message()
    drain(node)
    secured.fin(message)
    assert ended(node) == 0
    node.start()
    assert left(node, 1) == {b"b": 1}


# ---------------------------------------------------------------------- elsewhere


def test_consumers_are_sent_elsewhere(daemon, tmp_path):
    lookup = LookupServer(tmp_path / "lookupd.log")
    try:
        node = daemon(f"--lookupd-tcp-address=127.0.0.1:{lookup.tcp_port}", "--broadcast-address=127.0.0.1")
        node.connect().sub("t", "c")

        def ask(path):
            web = http.client.HTTPConnection("127.0.0.1", lookup.http_port, timeout=WAIT_SECONDS)
            web.request("GET", path)
            return json.loads(web.getresponse().read())

        def found():
            return len(ask("/lookup?topic=t").get("producers", []))

        wait_until(lambda: ask("/topics")["topics"] == ["t"] and found() == 1)
        drain(node, "?keep=true")
        wait_until(lambda: found() == 0)
        # It stays listed, without topics, and registers nothing.
        wait_until(lambda: [one["topics"] for one in ask("/nodes")["producers"]] == [[]])
        node.post("/topic/create?topic=new")
        drain(node, method="DELETE")
        wait_until(lambda: found() == 1 and len(ask("/lookup?topic=new").get("producers", [])) == 1)
        # Changes are forwarded again.
        node.post("/topic/create?topic=later")
        wait_until(lambda: ask("/lookup?topic=later").get("producers"))
        assert "LOOKUPD" in node.log and "ERROR: LOOKUPD" not in node.log
        node.process.send_signal(signal.SIGUSR1)
        assert ended(node) == 0
    finally:
        lookup.close()


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(("text", "nanoseconds"), [
    (b"0", 0), (b"250", 250_000_000), (b"30s", 30_000_000_000), (b"1h30m", 5_400_000_000_000), (b"1.5s", 1_500_000_000)])
def test_time_outs(text, nanoseconds):
    assert _duration(text) == nanoseconds


@pytest.mark.parametrize("text", [b"", b"-1s", b"-1", b"soon", b"1w", b"9" * 40, b"\xff", b"30 s", b"1e3", b"999999999h"])
def test_what_is_not_a_time_out(text):
    with pytest.raises(ApiError, match="INVALID_ARG_TIMEOUT"):
        _duration(text)


def test_bad_calls_change_nothing(node):
    for query, word in (("timeout=x", "INVALID_ARG_TIMEOUT"), ("keep=maybe", "INVALID_ARG_KEEP"),
                        ("timeout=1s;keep=1", "INVALID_REQUEST")):
        assert node.http("POST", f"/drain?{query}") == (400, b'{"message":"%b"}' % word.encode())
    assert node.http("PUT", "/drain")[0] == 405
    assert state(node) == "serving"
    node.connect().pub("t", b"x")
