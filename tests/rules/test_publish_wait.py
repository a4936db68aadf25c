"""--publish-wait: publishes to full queues wait for room, over TCP and HTTP."""

import json
import signal
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.publishing.support import post, publisher, remember
from tests.rules.support import publish, set_rule, set_topic_rule, subscribe, until_channel
from tests.rules.test_bounds import make, numbered
from tests.support.daemon import batch, wait_until
from tests.support.secure import connect, make_certificates

LONG = "--publish-wait=5m"
REASON = "channel c has 3 messages, its max_depth is 3 (PUT /channel/rules)"


def full(node, depth: int = 3, **rule: object) -> None:
    """A channel that has as many messages as it may."""
    make(node)
    set_rule(node, "t", "c", max_depth=depth, **rule)
    publish(node, "t", *numbered(depth))
    until_channel(node, "t", depth=depth)


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def until_waiting(node, count: int, topic: str = "t") -> None:
    wait_until(lambda: node.stats(topic).get("waiting_publishes", 0) == count, f"{count} publishes that wait")


def bodies_of(client, count: int) -> list[bytes]:
    return [message.body for message in client.messages(count, finish=True)]


@pytest.fixture(params=["memory", "log"])
def node(request, daemon):
    return daemon(f"--topic-storage={request.param}", LONG, "--max-body-size=50000000", "--max-msg-size=30000000")


@pytest.mark.parametrize(("line", "body", "count"), [
    ("PUB t", b"x", 1), ("DPUB t 1", b"x", 1), ("MPUB t", batch(b"x", b"y"), 2), ("PUB t", b"x" * 2_000_000, 1),
    ("MPUB t", batch(b"x" * 3_000_000, b"y" * 3_000_000), 2)])
def test_a_publish_waits_for_its_room(node, line, body, count):
    full(node)
    client = node.connect()
    client.command(line, body)
    until_waiting(node, 1)
    assert node.stats("t")["message_count"] == 3
    consumer = subscribe(node, "t", rdy=10)
    assert client.frame() == (0, b"OK")
    assert bodies_of(consumer, 3) == [b"0", b"1", b"2"]
    assert [message.body[:1] for message in consumer.messages(count, finish=True)] == [b"x", b"y"][:count]
    client.ok("PUB t", b"after")
    until_waiting(node, 0)


@pytest.mark.parametrize("transport", ["plain", "tls", "deflate", "tls+snappy"])
def test_a_deferred_batch_waits_over_any_transport(daemon, tmp_path, transport):
    """What follows it may be decoded already, and waits as well."""
    certs = make_certificates(tmp_path)
    node = daemon(LONG, f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key")
    full(node)
    client = connect(node, transport, deferred_batches=True)
    client.send(b"DMPUB t 1\n" + sized(batch(b"x", b"y")) + b"PUB t\n" + sized(b"z"))
    until_waiting(node, 1)
    assert node.stats("t")["message_count"] == 3
    consumer = subscribe(node, "t", rdy=10)
    assert client.frame() == client.frame() == (0, b"OK")
    assert bodies_of(consumer, 3) == [*numbered(3)]
    assert sorted(bodies_of(consumer, 3)) == [b"x", b"y", b"z"]
    until_waiting(node, 0)


def test_the_time_is_over(daemon):
    node = daemon("--publish-wait=300ms")
    full(node)
    for line, body in (("PUB t", b"x"), ("MPUB t", batch(b"x", b"y")), ("DPUB t 5", b"x")):
        client = node.connect()
        client.command(line, body)
        kind, text = client.frame()
        verb = line.split()[0]
        assert kind == 1 and text.startswith(f"E_{verb}_FAILED {verb} failed {REASON}".encode())
        assert client.frame() is None
    assert post(node, "/pub?topic=t", b"x") == (503, f'{{"message":"FAILED - {REASON}"}}'.encode())
    assert post(node, "/mpub?topic=t", b"x\ny\n")[0] == 503
    assert node.stats("t")["message_count"] == 3
    assert 'nsqc_publishes_refused_total{reason="full"} 5' in node.http("GET", "/metrics")[1].decode()


def test_what_never_fits_fails_at_once(node):
    full(node)
    client = node.connect()
    client.command("MPUB t", batch(*numbered(4)))
    assert client.frame()[1].endswith(b"a batch of 4 messages does not fit")
    assert post(node, "/mpub?topic=t", b"1\n2\n3\n4\n")[0] == 503
    set_rule(node, "t", "c", max_depth=None, max_bytes=5)
    client = node.connect()
    client.command("PUB t", b"123456")
    assert client.frame()[0] == 1


def test_pipelined_publishes_keep_their_order(daemon):
    node = daemon(LONG)
    full(node, 5)
    client = node.connect()
    client.send(b"".join(b"PUB t\n\0\0\0\3%03d" % number for number in range(500)))
    until_waiting(node, 1)
    consumer = subscribe(node, "t", rdy=3)
    assert bodies_of(consumer, 5) == list(numbered(5))
    assert bodies_of(consumer, 500) == [b"%03d" % number for number in range(500)]
    assert [client.frame() for _ in range(500)] == [(0, b"OK")] * 500


def test_many_publishers_and_a_batch_that_waits_longer(daemon):
    """A batch is not overtaken for ever, and everything comes out once."""
    node = daemon(LONG)
    full(node, 20)
    first = node.connect()
    first.command("MPUB t", batch(*(b"batch-%d" % number for number in range(20))))
    until_waiting(node, 1)
    clients = [node.connect() for _ in range(10)]
    for number, client in enumerate(clients):
        client.send(b"".join(b"PUB t\n\0\0\0\6%02d-%03d" % (number, index) for index in range(20)))
    until_waiting(node, 11)
    consumer = subscribe(node, "t", rdy=7)
    bodies = bodies_of(consumer, 20 + 20 + 200)
    assert bodies[20:40] == [b"batch-%d" % number for number in range(20)]
    assert sorted(bodies[40:]) == sorted(b"%02d-%03d" % (number, index) for number in range(10) for index in range(20))
    for number in range(10):
        of_one = [body for body in bodies[40:] if body.startswith(b"%02d-" % number)]
        assert of_one == sorted(of_one)
    assert first.frame() == (0, b"OK")
    for client in clients:
        assert [client.frame() for _ in range(20)] == [(0, b"OK")] * 20


def test_the_connection_lives_on_meanwhile(daemon):
    """It gets messages and heartbeats, is not cut off, and what it has sent after the publish follows."""
    node = daemon(LONG)
    full(node)
    make(node, "other")
    client = node.connect()
    client.command("IDENTIFY", b'{"heartbeat_interval": 1000}')
    assert client.frame() == (0, b"OK")
    client.sub("other", "c", 10)
    publish(node, "other", b"one")
    message = client.message()
    client.send(b"PUB t\n\0\0\0\1xFIN " + message.id + b"\n")
    until_waiting(node, 1)
    publish(node, "other", b"two")
    data = b""
    while data.count(b"_heartbeat_") < 4 or b"two" not in data:
        more = client.sock.recv(65536)
        assert more
        data += more
    assert b"OK" not in data and node.channel("other", "c")["in_flight_count"] == 2
    node.post("/channel/empty?topic=t&channel=c")
    assert client.frame() == (0, b"OK")
    until_channel(node, "other", in_flight_count=1)
    until_channel(node, "t", depth=1)


@pytest.mark.parametrize("path", ["/pub?topic=t", "/pub?topic=t&id=true", "/mpub?topic=t", "/mpub?topic=t&binary=true",
                                  "/pub?topic=t&defer=1", "/pub?topic=t with an id"])
def test_http(node, path):
    full(node)
    path, _, with_id = path.partition(" ")
    body = batch(b"x") if "binary" in path else b"x"
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(post, node, path, body, "an-id" if with_id else None)
        until_waiting(node, 1)
        consumer = subscribe(node, "t", rdy=1)
        assert bodies_of(consumer, 4) == [*numbered(3), b"x"]
        status, text = answer.result()
    assert status == 200 and (text == b"OK" or len(json.loads(text)["id"]) == 16)


def test_a_known_id_does_not_wait(daemon):
    node = daemon(LONG)
    make(node)
    remember(node)
    client = publisher(node)
    client.ok("PUB t one", b"a")
    set_rule(node, "t", "c", max_depth=1)
    until_channel(node, "t", depth=1)
    client.ok("PUB t one", b"a")
    assert post(node, "/pub?topic=t", b"a", "one") == (200, b"OK")
    client.command("PUB t two", b"b")
    until_waiting(node, 1)
    other = publisher(node)
    other.command("MPUB t two", batch(b"b"))
    until_waiting(node, 2)
    consumer = subscribe(node, "t", rdy=10)
    assert client.frame() == other.frame() == (0, b"OK")
    assert bodies_of(consumer, 2) == [b"a", b"b"]
    assert consumer.quiet(0.2)
    assert node.stats("t")["deduplicated"] == 3


def test_a_log_at_its_limit(daemon):
    node = daemon(LONG, "--max-bytes-per-file=4096")
    make(node)
    set_topic_rule(node, "t", storage="log", retain_bytes=16384, overflow="refuse")
    client, count = node.connect(), 0
    while not node.stats("t").get("waiting_publishes"):
        client.command("PUB t", b"%03d" % count + b"x" * 1000)
        count += 1
        try:
            assert client.frame(0.5) == (0, b"OK")
        except TimeoutError:
            until_waiting(node, 1)
    consumer = subscribe(node, "t", rdy=1)
    assert [body[:3] for body in bodies_of(consumer, count)] == [b"%03d" % number for number in range(count)]
    assert client.frame() == (0, b"OK")
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(post, node, "/mpub?topic=t", b"y" * 500 + b"\n" + b"z" * 500) for _ in range(30)]
        assert {body[:1] for body in bodies_of(consumer, 60)} == {b"y", b"z"}
        assert {answer.result() for answer in answers} == {(200, b"OK")}


@pytest.mark.parametrize("way", ["rule", "empty", "delete channel", "pause"])
def test_room_that_no_delivery_makes(node, way):
    full(node)
    client = node.connect()
    client.command("PUB t", b"x")
    until_waiting(node, 1)
    if way == "rule":
        set_rule(node, "t", "c", max_depth=4)
    elif way == "delete channel":
        node.post("/channel/delete?topic=t&channel=c")
    else:
        if way == "pause":
            node.post("/topic/pause?topic=t")       # what waits in the topic itself has no limit here
            set_rule(node, "t", "c", max_depth=None)
        node.post("/channel/empty?topic=t&channel=c")
    assert client.frame() == (0, b"OK")


def refusals(node, begin) -> tuple[bytes, bytes, tuple[int, bytes]]:
    """The answers of publishes over TCP and HTTP that wait when something happens."""
    one, other = node.connect(), node.connect()
    one.command("PUB t", b"x")
    other.command("MPUB t", batch(b"x", b"y"))
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(post, node, "/pub?topic=t", b"x")
        until_waiting(node, 3)
        begin()
        found = one.frame(), other.frame(), answer.result()
    assert found[0][0] == found[1][0] == 1 and found[2][0] == 503
    assert one.frame() is other.frame() is None
    return found[0][1], found[1][1], found[2]


def test_the_topic_is_deleted(node):
    full(node)
    pub, mpub, _ = refusals(node, lambda: node.post("/topic/delete?topic=t"))
    assert (pub, mpub) == (b"E_PUB_FAILED PUB failed exiting", b"E_MPUB_FAILED MPUB failed exiting")
    publish(node, "t", b"y")


def test_the_daemon_stops(node):
    full(node)
    stopping = threading.Thread(target=node.stop)
    pub, mpub, _ = refusals(node, stopping.start)
    stopping.join()
    assert pub == f"E_PUB_FAILED PUB failed {REASON}".encode() and mpub.startswith(b"E_MPUB_FAILED ")
    node.start()
    assert bodies_of(subscribe(node, "t", rdy=10), 3) == list(numbered(3))


def test_the_daemon_drains(node):
    full(node)
    pub, mpub, (_, text) = refusals(node, lambda: node.post("/drain?keep=true"))
    assert (pub, mpub) == (b"E_PUB_FAILED PUB failed draining", b"E_MPUB_FAILED MPUB failed draining")
    assert json.loads(text) == {"message": "DRAINING"}


def test_clients_that_leave(daemon):
    """One over HTTP is forgotten at once, one over TCP has sent its publish and may leave."""
    node = daemon(LONG)
    full(node)
    web, client = socket.create_connection(("127.0.0.1", node.http_port)), node.connect()
    web.sendall(b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nhttp")
    client.command("PUB t", b"tcp")
    until_waiting(node, 2)
    web.close()
    client.close()
    until_waiting(node, 1)
    consumer = subscribe(node, "t", rdy=1)
    assert bodies_of(consumer, 4) == [*numbered(3), b"tcp"]
    assert consumer.quiet(0.2)


@pytest.mark.parametrize("sync", ["write", "fsync"])
def test_a_kill_loses_nothing_that_was_acknowledged(daemon, sync):
    node = daemon("--topic-storage=log", f"--log-sync={sync}", LONG)
    make(node)
    set_rule(node, "t", "c", max_depth=50)
    acknowledged: list[list[int]] = [[] for _ in range(8)]

    def run(own: list[int], first: int) -> None:
        client = node.connect()
        try:
            for number in range(first, first + 10_000):
                client.command("PUB t", b"%d" % number)
                if client.frame() != (0, b"OK"):
                    return
                own.append(number)
        except OSError:
            return

    threads = [threading.Thread(target=run, args=(own, 10_000 * number)) for number, own in enumerate(acknowledged)]
    for thread in threads:
        thread.start()
    taken, consumer = [], subscribe(node, "t", rdy=5)
    for _ in range(400):
        message = consumer.message()
        taken.append(int(message.body))
        consumer.fin(message)
    wait_until(lambda: node.stats("t").get("waiting_publishes"))
    node.stop(signal.SIGKILL)
    for thread in threads:
        thread.join()
    node.start()
    left = {int(message["body"]) for message in map(
        json.loads, node.http("GET", "/topic/read?topic=t")[1].splitlines())} | set(taken)
    assert left >= {number for own in acknowledged for number in own}


def test_reload(daemon):
    """SIGHUP changes it for connections that come later."""
    node = daemon()
    config = node.data_path / "nsqd.toml"
    config.write_text("publish_wait = 0\n")
    node.restart(f"--config={config}")
    full(node)
    config.write_text('publish_wait = "5m"\n')
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "RELOAD: publish_wait is now 5m0s" in node.log)
    client = node.connect()
    client.command("PUB t", b"x")
    until_waiting(node, 1)
