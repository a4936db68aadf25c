"""Creation limits per client: topics and channels up to a total, and no faster than a connection's rate."""

import http.client
import json
import struct
import threading
import time

import pytest

from tests.httpd.wire import Wire, request
from tests.metrics.pages import scrape, value
from tests.peers.conftest import lookupd  # noqa: F401 (a fixture)
from tests.support.daemon import batch, wait_until
from tests.support.secure import connect

SECONDS = 60        # timeout of waits, on a busy machine
TOPICS = "topic limit of %d reached: delete a topic or raise --max-topics"
CHANNELS = "channel limit of %d reached: delete a channel or raise --max-channels-per-topic"
BURST = 10          # a connection may create this many times the rate at once


def pub(name: str) -> bytes:
    return f"PUB {name}\n".encode() + struct.pack(">i", 1) + b"x"


def body(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def answer(node, data: bytes) -> bytes:
    """The error that ends a new connection."""
    client = node.connect()
    client.send(data)
    kind, text = client.frame()
    assert kind == 1 and client.frame() is None
    return text


def names(node) -> list[str]:
    return [topic["topic_name"] for topic in node.stats()["topics"]]


def channels(node, topic: str) -> list[str]:
    return [channel["channel_name"] for channel in node.stats(topic)["channels"]]


def counted(node, name: str, **labels: str) -> float:
    return value(scrape(node.http_port), f"nsqc_{name}_total", **labels)


# ---------------------------------------------------------------------- limits


def test_topics_beyond_the_limit_are_refused_and_the_others_work(daemon):
    node = daemon("--max-topics=3", "--topic-storage=log")
    for name in ("a", "b", "c#ephemeral"):
        node.connect().pub(name, b"x")
    reason = (TOPICS % 3).encode()
    assert answer(node, pub("d")) == b"E_PUB_FAILED PUB failed " + reason
    assert answer(node, b"DPUB d 10\n" + body(b"x")) == b"E_DPUB_FAILED DPUB failed " + reason
    assert answer(node, b"MPUB d\n" + body(batch(b"x", b"y"))) == b"E_MPUB_FAILED MPUB failed " + reason
    assert answer(node, b"PUB d#ephemeral\n" + body(b"x")) == b"E_PUB_FAILED PUB failed " + reason
    assert answer(node, b"SUB d c\n") == b"E_SUB_FAILED SUB failed " + reason
    for path, data in (("/pub?topic=d", b"x"), ("/pub?defer=1&topic=d", b"x"), ("/mpub?topic=d", b"x\ny"), ("/topic/create?topic=d", b"")):
        status, text = node.http("POST", path, data)
        assert (status, json.loads(text)) == (503, {"message": "FAILED - " + TOPICS % 3}), path
    assert names(node) == ["a", "b", "c#ephemeral"]
    assert counted(node, "creations_refused", limit="--max-topics") == 9
    assert counted(node, "publishes_refused", reason="limit") == 7
    assert counted(node, "publishes_refused", reason="failed") == 0
    wait_until(lambda: "TOPIC(d): a client is refused - " + TOPICS % 3 in node.log, seconds=SECONDS)
    assert "Traceback" not in node.log
    node.connect().pub("a", b"y")
    assert node.connect().sub("a", "c", 1).message().body == b"x"
    node.post("/topic/delete?topic=b")
    node.connect().pub("d", b"x")


def test_a_large_publish_to_a_topic_beyond_the_limit_is_refused(daemon):
    """Its body is gathered over several reads, apart from its line."""
    node = daemon("--max-topics=1")
    node.connect().pub("a", b"x")
    client = node.connect()
    client.send(b"PUB b\n" + struct.pack(">i", 500_000))
    for _ in range(50):
        client.send(b"y" * 10_000)
        time.sleep(0.001)
    assert client.frame(SECONDS) == (1, b"E_PUB_FAILED PUB failed " + (TOPICS % 1).encode())
    assert names(node) == ["a"]


@pytest.mark.parametrize("storage", ["memory", "log"])
def test_channels_beyond_the_limit_are_refused_and_the_others_work(daemon, storage):
    node = daemon("--max-channels-per-topic=2", f"--topic-storage={storage}")
    one, two = node.connect().sub("t", "one", 1), node.connect().sub("t", "two#ephemeral")
    reason = CHANNELS % 2
    assert answer(node, b"SUB t three\n") == b"E_SUB_FAILED SUB failed " + reason.encode()
    assert answer(node, b"SUB t three#ephemeral\n") == b"E_SUB_FAILED SUB failed " + reason.encode()
    paths = ["/channel/create?topic=t&channel=three"]
    if storage == "log":
        paths.append("/channel/create?topic=t&channel=three&from=beginning")
    for path in paths:
        status, text = node.http("POST", path)
        assert (status, json.loads(text)) == (503, {"message": f"FAILED - {reason}"})
    assert channels(node, "t") == ["one", "two#ephemeral"]
    assert counted(node, "creations_refused", limit="--max-channels-per-topic") == 2 + len(paths)
    node.post("/channel/create?topic=t&channel=one")
    node.connect().pub("t", b"x")
    assert one.message().body == b"x"
    two.close()
    wait_until(lambda: channels(node, "t") == ["one"], seconds=SECONDS)
    node.connect().sub("t", "three")
    # Channels of another topic count separately.
    node.connect().sub("u", "one")


def test_what_exists_at_the_start_stays(daemon):
    node = daemon("--topic-storage=log")
    for topic in "abcd":
        for channel in ("one", "two", "three"):
            node.connect().sub(topic, channel)
        node.connect().pub(topic, b"x")
    assert node.stop() == 0
    node.start("--max-topics=2", "--max-channels-per-topic=1")
    assert names(node) == ["a", "b", "c", "d"]
    for topic in "abcd":
        assert sorted(channels(node, topic)) == ["one", "three", "two"]
        assert node.connect().sub(topic, "two", 1).message().body == b"x"
    assert answer(node, pub("e")).endswith(b"--max-topics")
    assert answer(node, b"SUB a four\n").endswith(b"--max-channels-per-topic")
    # Also after a kill, when nsqd.dat may lack the newest names.
    node.kill()
    (node.data_path / "nsqd.dat").unlink()
    (node.data_path / "nsqd.dat.last").unlink()
    node.start("--max-topics=2", "--max-channels-per-topic=1")
    assert names(node) == ["a", "b", "c", "d"]
    assert sorted(channels(node, "a")) == ["one", "three", "two"]


def test_channels_that_nsqlookupd_knows_are_created_up_to_the_limit(daemon, lookupd):     # noqa: F811
    lookup = lookupd({"t": [f"c{number}" for number in range(9)]})
    node = daemon("--max-channels-per-topic=4", f"--lookupd-tcp-address={lookup.address}")
    wait_until(lambda: "peer info" in node.log, seconds=SECONDS)
    node.connect().pub("t", b"x")
    wait_until(lambda: node.stats("t")["depth"] == 0, seconds=SECONDS)
    assert channels(node, "t") == ["c0", "c1", "c2", "c3"]
    wait_until(lambda: "TOPIC(t): channels that nsqlookupd knows are not created - " + CHANNELS % 4 in node.log, seconds=SECONDS)


# ---------------------------------------------------------------------- the rate


def test_creations_beyond_the_rate_wait_and_none_is_refused(daemon):
    """One a second: after the burst, the count follows the clock, however much the client has sent."""
    node = daemon("--max-create-rate=1")
    client, began = node.connect(), time.monotonic()
    count = BURST + 4
    client.send(b"".join(pub(f"t{number}") for number in range(count)) + pub("t0") * 3)
    while True:
        found = len(names(node))
        assert found <= BURST + 1 + (time.monotonic() - began)
        if found == count:
            break
        time.sleep(0.05)
        node.connect().pub("t0", b"x")      # other clients are served, and existing names cost nothing
    assert [client.frame(SECONDS) for _ in range(count + 3)] == [(0, b"OK")] * (count + 3)
    assert counted(node, "creations_delayed") >= 3


@pytest.mark.parametrize("codec", ["", "deflate", "snappy"])
def test_all_kinds_of_commands_are_answered_in_order_beyond_the_rate(daemon, codec):
    node = daemon("--max-create-rate=5")
    client = connect(node, codec) if codec else node.connect()
    expected, data = [], b""
    for number in range(5 * BURST + 8):
        kind = number % 3
        if kind == 0:
            data += pub(f"t{number}")
        elif kind == 1:
            data += f"MPUB t{number}\n".encode() + body(batch(b"x", b"y"))
        else:
            data += f"DPUB t{number} 5\n".encode() + body(b"x")
        expected.append((0, b"OK"))
    client.send(data + b"SUB t0 c\nRDY 1\n")
    assert [client.frame(SECONDS) for _ in expected] == expected
    assert client.frame(SECONDS) == (0, b"OK")
    message = client.message(SECONDS)
    client.send(b"FIN " + message.id + b"\n" + b"BOGUS\n")
    assert client.frame(SECONDS) == (1, b"E_INVALID invalid command BOGUS")
    assert client.frame(SECONDS) is None
    assert len(names(node)) == len(expected)
    assert counted(node, "creations_delayed") >= 1


def test_large_bodies_make_no_way_around_the_rate(daemon):
    """A gathered body looks its topic up at its end, apart from its line."""
    node = daemon("--max-create-rate=1")
    client, began = node.connect(), time.monotonic()
    count = BURST + 3

    def send():
        for number in range(count):
            client.send(f"PUB t{number}\n".encode() + struct.pack(">i", 300_000))
            for _ in range(30):
                client.send(b"y" * 10_000)

    sender = threading.Thread(target=send)
    sender.start()
    while (found := len(names(node))) < count:
        assert found <= BURST + 1 + (time.monotonic() - began)
        time.sleep(0.05)
    sender.join(SECONDS)
    assert [client.frame(SECONDS) for _ in range(count)] == [(0, b"OK")] * count


def test_a_rate_of_0_is_none(daemon):
    node = daemon("--max-create-rate=0")
    client = node.connect()
    client.send(b"".join(pub(f"t{number}") for number in range(3000)))
    assert [client.frame(SECONDS) for _ in range(3000)] == [(0, b"OK")] * 3000
    assert counted(node, "creations_delayed") == 0


def wire_to(node) -> Wire:
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=SECONDS)
    connection.connect()
    return Wire(connection.sock)


@pytest.mark.parametrize("path, data", [("/topic/create?topic=", b""), ("/pub?topic=", b"x"), ("/pub?a=b&topic=", b"x"),
                                        ("/mpub?topic=", b"x\ny"), ("/channel/create?topic=all&channel=", b"")])
def test_requests_count_as_well(daemon, path, data):
    node = daemon("--max-create-rate=1")
    node.post("/topic/create?topic=all")
    count, began = BURST + 3, time.monotonic()
    is_channel = path.startswith("/channel")
    with wire_to(node) as wire:
        wire.send(b"".join(request("POST", f"{path}t{number}", data) for number in range(count))
                  + request("POST", "/pub?topic=all", b"x") + request("GET", "/ping"))
        while (found := len(channels(node, "all") if is_channel else names(node)[1:])) < count:
            assert found <= BURST + 1 + (time.monotonic() - began)
            time.sleep(0.05)
        assert [wire.reply().status for _ in range(count)] == [200] * count
        assert wire.reply().body == wire.reply().body == b"OK"
    assert counted(node, "creations_delayed") >= 2


def test_requests_for_places_in_a_log_count_as_well(daemon):
    """Their handlers wait for the journal; the rate applies once they finish."""
    node = daemon("--max-create-rate=1", "--topic-storage=log")
    node.post("/pub?topic=t", b"x")
    count, began = BURST + 3, time.monotonic()
    with wire_to(node) as wire:
        wire.send(b"".join(request("POST", f"/channel/create?topic=t&channel=c{number}&from=beginning") for number in range(count)))
        while (found := len(channels(node, "t"))) < count:
            assert found <= BURST + 1 + (time.monotonic() - began)
            time.sleep(0.05)
        assert [wire.reply().status for _ in range(count)] == [200] * count
        wire.request("GET", "/ping")
        assert wire.reply().body == b"OK"


def test_clients_that_leave_while_they_wait(daemon):
    """Half closed, closed, and while the daemon stops."""
    node = daemon("--max-create-rate=1")
    count = BURST + 3
    half = wire_to(node)
    half.send(b"".join(request("POST", f"/pub?topic=h{number}", b"x") for number in range(count)))
    half.sock.shutdown(1)
    gone = [wire_to(node), node.connect(), node.connect()]
    gone[0].send(b"".join(request("POST", f"/topic/create?topic=g{number}") for number in range(count + 20)))
    gone[1].send(b"".join(pub(f"f{number}") for number in range(count + 20)))
    gone[2].send(b"".join(pub(f"e{number}") for number in range(count + 20)))
    wait_until(lambda: counted(node, "creations_delayed") >= 4, seconds=SECONDS)
    gone[0].sock.close()
    gone[1].close()
    assert [half.reply().status for _ in range(count)] == [200] * count
    assert half.is_closed()
    for wire in (wire_to(node), wire_to(node)):
        wire.send(b"".join(request("POST", f"/topic/create?topic=i{number}") for number in range(count + 20)))
    wait_until(lambda: "i10" in names(node), seconds=SECONDS)
    assert node.stop() == 0
    assert "Traceback" not in node.log and " - connection failed" not in node.log


# ---------------------------------------------------------------------- floods


def test_a_flood_of_topics_is_bounded_and_others_are_served(daemon):
    """20,000 new topics over TCP and 20,000 over HTTP: the limits hold, and /ping and other clients' publishes are
    answered throughout."""
    most, flood = 600, 20_000
    node = daemon(f"--max-topics={most}", "--max-create-rate=20")
    node.post("/topic/create?topic=good")
    ends = threading.Event()
    answers = []

    def tcp():
        client = node.connect()
        client.send(b"".join(pub(f"a{number}") for number in range(flood)))
        while (frame := client.frame(SECONDS)) is not None:
            answers.append(frame)

    def web():
        with wire_to(node) as wire:
            wire.send(b"".join(request("POST", f"/topic/create?topic=b{number}") for number in range(flood)))
            while wire.reply().status == 200:
                pass

    def others():
        good = node.connect()
        pinger = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=SECONDS)
        while not ends.is_set():
            pinger.request("GET", "/ping")
            assert pinger.getresponse().read() == b"OK"
            good.pub("good", b"x")
            served.append(1)

    served: list[int] = []
    floods = [threading.Thread(target=tcp), threading.Thread(target=web)]
    other = threading.Thread(target=others)
    for thread in (*floods, other):
        thread.start()
    for thread in floods:
        thread.join(SECONDS)
        assert not thread.is_alive()
    before = len(served)
    wait_until(lambda: len(served) > before, seconds=SECONDS)
    ends.set()
    other.join(SECONDS)
    assert len(names(node)) == most
    assert answers[-1] == (1, b"E_PUB_FAILED PUB failed " + (TOPICS % most).encode())
    assert set(answers[:-1]) == {(0, b"OK")}
    assert counted(node, "creations_delayed") > 0
    assert node.stats("good")["message_count"] == len(served)
