"""/topic/peek and /channel/peek: messages in their stored order, page by page, during delivery."""

import base64
import json
import re
import struct
import threading
from urllib.parse import quote

import pytest

from nsqc.httpd import peek as peeked
from nsqc.store.peek import Seen
from tests.httpd.conftest import HttpDaemon
from tests.httpd.test_read_streams import tls_wire
from tests.support.daemon import wait_until
from tests.support.secure import self_signed

HOSTILE = {
    "quotes": b'"\\\b\f\n\r\t\x00\x1f', "text": "Grüße, 世界 \u2028".encode(), "surrogate": b"\xed\xa0\x80",
    "latin": b"caf\xe9", "html": b"</script><!--", "escape": b"\x1b]0;x\x07", "zeros": bytes(100), "deep": b"[" * 5000,
    "numbers": b"[1e999,-0,12345678901234567890]", "twice": b'{"a":1} {"a":2}', "string": b'"x"', "nan": b"NaN",
    "lone": b'"\\ud800"', "bom": b"\xef\xbb\xbf{}", "long": ("\0\u00e9\"" * 16_000).encode(),
}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A daemon with small queues in memory and small files, for tests that do not affect each other."""
    daemon = HttpDaemon(tmp_path_factory.mktemp("node") / "data", "--mem-queue-size=10", "--max-bytes-per-file=2000",
                        "--max-msg-size=4194304", "--max-body-size=8388608")
    yield daemon
    assert "panic" not in daemon.log
    assert daemon.stop() == 0


def peek(node, topic, channel="", **arguments):
    """The answer of one call, which must succeed."""
    path = f"/{'channel' if channel else 'topic'}/peek?topic={topic}" + (f"&channel={channel}" if channel else "")
    reply = node.call("GET", path + "".join(f"&{key}={quote(str(value))}" for key, value in arguments.items()))
    assert reply.status == 200, reply
    return reply.json


def pages(node, topic, channel="", most=1000, **arguments):
    """The messages of all pages."""
    found, cursor = [], None
    while True:
        page = peek(node, topic, channel, max_messages=most, **arguments, **({"from": cursor} if cursor else {}))
        assert len(page["messages"]) <= most
        found += page["messages"]
        cursor = page["next"]
        if cursor is None:
            return found


def bodies(messages):
    return [message["body"] for message in messages]


def log_topic(node, name):
    assert node.http("PUT", f"/topic/rules?topic={name}", b'{"storage":"log"}')[0] == 200


def channel(node, topic):
    node.post(f"/channel/create?topic={topic}&channel=c")


def drained(node, topic):
    wait_until(lambda: node.stats(topic)["depth"] == 0, "the topic is drained")


# ---------------------------------------------------------------------- waiting messages

@pytest.mark.parametrize("most", [1, 7, 1000])
def test_pages_have_memory_then_disk(node, most):
    topic = f"waits{most}"
    expected = [f"{number}" for number in range(150)]
    node.connect().pub(topic, *[text.encode() for text in expected])
    assert bodies(pages(node, topic, most=most)) == expected
    channel(node, topic)
    drained(node, topic)
    assert bodies(pages(node, topic, "c", most=most)) == expected
    assert peek(node, topic, "c")["count"] == 150


def test_a_message_has_what_delivery_knows_of_it(node):
    node.connect().pub("one", b"hello")
    channel(node, "one")
    drained(node, "one")
    client = node.connect().sub("one", "c", 1)
    message = client.message()
    client.command("RDY 0")
    client.command(f"REQ {message.id.decode()} 0")
    wait_until(lambda: node.channel("one", "c")["depth"] == 1)
    assert peek(node, "one", "c") == {
        "topic": "one", "channel": "c", "state": "queued", "count": 1, "next": None,
        "messages": [{"id": message.id.decode(), "timestamp": message.timestamp, "attempts": 1, "state": "queued",
                      "size": 5, "body": "hello"}]}


def test_looking_changes_nothing(node):
    producer = node.connect()
    producer.pub("same", *[b"%d" % number for number in range(60)])
    channel(node, "same")
    drained(node, "same")
    before = node.channel("same", "c")
    for state in ("queued", "in_flight", "deferred"):
        pages(node, "same", "c", most=7, state=state)
    assert node.channel("same", "c") == before
    client = node.connect().sub("same", "c", 100)
    taken = client.messages(60)
    pages(node, "same", "c", most=7, state="in_flight")
    assert [message.body for message in taken] == [b"%d" % number for number in range(60)]
    assert {message.attempts for message in taken} == {1}


def test_positions_survive_what_is_delivered_between_two_pages(node):
    node.connect().pub("moving", *[b"%d" % number for number in range(200)])
    channel(node, "moving")
    drained(node, "moving")
    first = peek(node, "moving", "c", max_messages=50)
    client = node.connect().sub("moving", "c", 1)
    client.messages(30, finish=True)
    client.command("RDY 0")
    rest = peek(node, "moving", "c", max_messages=1000, **{"from": first["next"]})
    assert bodies(rest["messages"]) == [str(number) for number in range(50, 200)]
    # Delivery has passed the place: it continues with the remaining messages.
    client.command("RDY 1")
    client.messages(90, finish=True)
    client.command("RDY 0")
    rest = peek(node, "moving", "c", max_messages=1000, **{"from": first["next"]})
    left = bodies(rest["messages"])
    assert left == [str(number) for number in range(200 - len(left), 200)]
    assert 75 <= len(left) <= 81


def test_deferred_messages_of_an_earlier_run_are_found_where_they_lie(start):
    node = start("--mem-queue-size=10")
    client = node.connect()
    channel_made = node.connect().sub("kept", "c")
    client.ok("DPUB kept 3600000", b"later")
    client.pub("kept", b"now")
    channel_made.close()
    wait_until(lambda: node.channel("kept", "c")["deferred_count"] == 1)
    node.restart()
    states = {message["body"]: (message["state"], "due" in message) for message in pages(node, "kept", "c")}
    assert states == {"later": ("deferred", True), "now": ("queued", False)}


# ---------------------------------------------------------------------- in flight, deferred

def test_what_is_in_flight(node):
    node.connect().pub("flying", *[b"%d" % number for number in range(25)])
    client = node.connect()
    client.command("IDENTIFY", json.dumps({"client_id": "me", "hostname": "here"}).encode())
    client.frame()
    client.sub("flying", "c", 20)
    taken = client.messages(20)
    found = pages(node, "flying", "c", most=3, state="in_flight")
    assert sorted(message["id"] for message in found) == sorted(message.id.decode() for message in taken)
    for message in found:
        assert message["attempts"] == 1
        assert (message["client"]["client_id"], message["client"]["hostname"]) == ("me", "here")
        assert message["due"] - message["delivered"] == pytest.approx(60e9, abs=1e6)
    client.close()
    wait_until(lambda: node.channel("flying", "c")["client_count"] == 0)
    assert {message["client"] for message in pages(node, "flying", "c", state="in_flight")} == {None}


def test_what_is_deferred_comes_by_time(node):
    channel_made = node.connect().sub("late", "c")
    client = node.connect()
    for number in range(40):
        client.command(f"DPUB late {1000000 - 1000 * number}", b"%d" % number)
        client.frame()
    found = pages(node, "late", "c", most=7, state="deferred")
    assert bodies(found) == [str(number) for number in reversed(range(40))]
    assert {message["state"] for message in found} == {"deferred"}
    channel_made.close()


def test_many_deferred_at_the_same_time_are_all_there(node):
    """All are due at the same moment: ids order them."""
    node.connect().sub("many", "c")
    client = node.connect()
    command = b"DPUB many 3000000\n" + struct.pack(">i", 4) + b"body"
    client.send(command * 20000)
    for _ in range(20000):
        client.frame()
    found = pages(node, "many", "c", state="deferred", body="none")
    assert len({message["id"] for message in found}) == len(found) == 20000
    assert [message["due"] // 10**6 for message in found] == sorted(message["due"] // 10**6 for message in found)


# ---------------------------------------------------------------------- logs

@pytest.mark.parametrize("most", [1, 7, 1000])
def test_a_log_topic(node, most):
    topic = f"log{most}"
    log_topic(node, topic)
    client = node.connect()
    client.pub(topic, *[b"%d" % number for number in range(30)])
    found = pages(node, topic, most=most)
    assert [(message["body"], message["offset"]) for message in found] == [(str(n), n) for n in range(30)]
    channel(node, topic)
    client.ok(f"DPUB {topic} 3000000", b"later")
    assert bodies(pages(node, topic, "c", most=most)) == [str(number) for number in range(30)]
    consumer = node.connect().sub(topic, "c", 5)
    taken = consumer.messages(5)
    consumer.command("RDY 0")
    consumer.command(f"REQ {taken[0].id.decode()} 0")
    consumer.command(f"REQ {taken[1].id.decode()} 2000000")
    consumer.fin(taken[2])
    wait_until(lambda: node.channel(topic, "c")["in_flight_count"] == 2)
    assert bodies(pages(node, topic, "c", most=most)) == ["0", *[str(number) for number in range(5, 30)]]
    held = pages(node, topic, "c", most=most, state="in_flight")
    assert sorted((message["body"], message["offset"]) for message in held) == [("3", 3), ("4", 4)]
    deferred = pages(node, topic, "c", most=most, state="deferred")
    assert [(message["body"], message["offset"], message["attempts"]) for message in deferred] == \
        [("1", 1, 1), ("later", 30, 0)]
    assert pages(node, topic, most=most) == []


# ---------------------------------------------------------------------- bodies

@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bodies(node, name):
    body = HOSTILE[name]
    topic = f"hostile_{name}"
    node.connect().pub(topic, b"x", body)
    text = peek(node, topic)["messages"][1]
    if name in ("surrogate", "latin"):
        assert base64.b64decode(text["body_base64"]) == body
    else:
        assert text["body"] == body.decode()
    assert base64.b64decode(peek(node, topic, body="base64")["messages"][1]["body_base64"]) == body
    assert set(peek(node, topic, body="none")["messages"][1]) == {"id", "timestamp", "attempts", "state", "size"}
    value = peek(node, topic, body="json")["messages"][1]
    if name in ("numbers", "string"):
        assert value["body_json"] == json.loads(body)
    else:
        assert "body_json" not in value


def test_a_long_text_is_made_in_pieces():
    """If every byte needs an escape, a megabyte takes tens of milliseconds."""
    body = bytes(1_000_000)
    shown = peeked.Shown(Seen(b"0" * 16, 1, 2, len(body) + 1, body, 0))
    pieces = list(peeked._pieces(shown, "queued", peeked.Bodies("text", len(body))))
    assert max(map(len, pieces)) < 256 * 1024
    assert json.loads(b"".join(pieces)) == {
        "id": "0" * 16, "timestamp": 1, "attempts": 2, "state": "queued", "size": len(body) + 1, "truncated": True,
        "body": body.decode()}


def test_bodies_are_cut_between_characters(node):
    node.connect().pub("cut", "äöü".encode(), b"a\xff\xfe", b'{"a":1}')
    first, second, third = peek(node, "cut", max_bytes=3, body="json")["messages"]
    assert (first["body"], first["size"], first["truncated"]) == ("ä", 6, True)
    assert base64.b64decode(second["body_base64"]) == b"a\xff\xfe"
    assert "truncated" not in second
    assert (third["body"], third["truncated"]) == ('{"a', True)
    assert bodies(peek(node, "cut", max_bytes=0)["messages"][:1]) == [""]


def test_large_bodies_end_a_page_early(node):
    client = node.connect()
    for _ in range(5):
        client.pub("large", b"x" * 600_000)
    found = pages(node, "large", most=10, max_bytes=1048576)
    assert [len(message["body"]) for message in found] == [600_000] * 5
    assert len(peek(node, "large", max_bytes=1048576)["messages"]) == 1
    client.pub("larger", b"y" * 4_000_000)
    message = peek(node, "larger", max_bytes=1048576)["messages"][0]
    assert (len(message["body"]), message["size"], message["truncated"]) == (1048576, 4_000_000, True)


# ---------------------------------------------------------------------- errors

@pytest.mark.parametrize(("path", "status", "word"), [
    ("/topic/peek", 400, "MISSING_ARG_TOPIC"),
    ("/topic/peek?topic=a%20b", 400, "INVALID_ARG_TOPIC"),
    ("/topic/peek?topic=nothing", 404, "TOPIC_NOT_FOUND"),
    ("/topic/peek?topic=there&state=in_flight", 400, "INVALID_ARG_STATE"),
    ("/topic/peek?topic=there&max_messages=0", 400, "INVALID_ARG_MAX_MESSAGES"),
    ("/topic/peek?topic=there&max_messages=1001", 400, "INVALID_ARG_MAX_MESSAGES"),
    ("/topic/peek?topic=there&max_bytes=-1", 400, "INVALID_ARG_MAX_BYTES"),
    ("/topic/peek?topic=there&body=xml", 400, "INVALID_ARG_BODY"),
    ("/topic/peek?topic=there&from=t5.0123456789abcdef", 400, "INVALID_ARG_FROM"),
    ("/topic/peek?topic=there&from=m-1", 400, "INVALID_ARG_FROM"),
    ("/topic/peek?topic=there&from=%ff", 400, "INVALID_ARG_FROM"),
    ("/topic/peek?topic=there&%zz", 400, "INVALID_REQUEST"),
    ("/channel/peek?topic=there", 400, "MISSING_ARG_CHANNEL"),
    ("/channel/peek?channel=c", 400, "MISSING_ARG_TOPIC"),
    ("/channel/peek?topic=there&channel=%21", 400, "INVALID_ARG_CHANNEL"),
    ("/channel/peek?topic=nothing&channel=c", 404, "TOPIC_NOT_FOUND"),
    ("/channel/peek?topic=there&channel=c", 404, "CHANNEL_NOT_FOUND"),
    ("/channel/peek?topic=there&channel=here&state=", 400, "INVALID_ARG_STATE"),
    ("/channel/peek?topic=there&channel=here&state=deferred&from=m5", 400, "INVALID_ARG_FROM"),
])
def test_errors(node, path, status, word):
    channel_made = node.connect().sub("there", "here")
    reply = node.call("GET", path)
    assert (reply.status, reply.json) == (status, {"message": word})
    channel_made.close()


@pytest.mark.parametrize("cursor", ["m999999999999999999", "d9.9.9.9", f"d{'9' * 17}.{'9' * 17}.{'9' * 17}.{'9' * 18}",
                                    "r5", "o5", "d0.7.0.0", "d0.0.99999999.0", "d0.0.9.99999999"])
def test_places_that_nobody_was_given_do_no_harm(node, cursor):
    node.connect().pub("forged", *[b"%d" % number for number in range(100)])
    for _ in range(3):
        page = peek(node, "forged", max_messages=1000, **{"from": cursor})
        assert all(re.fullmatch("[0-9]{1,2}", body) for body in bodies(page["messages"]))
    assert node.call("GET", "/ping").body == b"OK"


def test_a_place_among_records_that_were_not_written_yet_is_found_when_delivery_is_beyond(tmp_path):
    """Such a place is a position and the number of records shown after it."""
    node = HttpDaemon(tmp_path / "data", "--mem-queue-size=0", "--max-bytes-per-file=2000")
    client = node.connect().sub("t", "c")
    client.pub("t", *[b"%d" % number for number in range(200)])
    wait_until(lambda: node.channel("t", "c")["backend_depth"] == 200)
    for taken in (0, 30, 60):
        while node.channel("t", "c")["depth"] > 200 - taken:
            client.command("RDY 1")
            client.messages(1, finish=True)
            client.command("RDY 0")
            client.messages(node.channel("t", "c")["in_flight_count"], finish=True)
            wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
        first = 200 - node.channel("t", "c")["depth"]
        found = bodies(peek(node, "t", "c", max_messages=1000, **{"from": "d0.0.50.50"})["messages"])
        assert found == [str(number) for number in range(max(50, first), 200)]
    node.close()


# ---------------------------------------------------------------------- during other work

@pytest.mark.parametrize("storage", ["memory", "log"])
def test_consumers_get_every_message_once(node, storage):
    topic, count = f"beside_{storage}", 6000
    if storage == "log":
        log_topic(node, topic)
    node.post(f"/topic/create?topic={topic}")
    channel(node, topic)
    producer, consumer = node.connect(), node.connect().sub(topic, "c", 50)
    ended, failures, looks = threading.Event(), [], []

    def look():
        while not ended.is_set():
            for state in ("queued", "in_flight", "deferred"):
                try:
                    looks.append(len(pages(node, topic, "c", most=300, state=state)))
                except Exception as failure:    # reported by the test itself
                    failures.append(failure)
                    return

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for thread in lookers:
        thread.start()
    try:
        seen = []
        for number in range(0, count, 100):
            producer.pub(topic, *[b"%d" % at for at in range(number, number + 100)])
            if number >= 300:
                seen += consumer.messages(100, finish=True)
        seen += consumer.messages(300, finish=True)
    finally:
        ended.set()
        for thread in lookers:
            thread.join()
    assert failures == []
    assert looks
    assert [message.body for message in seen] == [b"%d" % number for number in range(count)]
    assert {message.attempts for message in seen} == {1}
    wait_until(lambda: node.channel(topic, "c")["in_flight_count"] == 0)
    assert node.channel(topic, "c")["depth"] == 0


@pytest.mark.parametrize("action", ["channel/empty", "channel/delete", "topic/delete", "topic/empty"])
def test_peeking_while_it_goes_away(node, action):
    producer = node.connect()
    ended, answers = threading.Event(), set()

    def look():
        while not ended.is_set():
            for path in ("/topic/peek?topic=gone", *(f"/channel/peek?topic=gone&channel=c&state={state}"
                                                     for state in ("queued", "in_flight", "deferred"))):
                reply = node.call("GET", f"{path}&max_messages=1000")
                answers.add((reply.status, reply.json.get("message", "")))

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for thread in lookers:
        thread.start()
    for _ in range(8):
        node.post("/topic/create?topic=gone")
        channel(node, "gone")
        producer.pub("gone", *[b"x" * 50] * 100)
        producer.ok("DPUB gone 60000", b"later")
        node.post(f"/{action}?topic=gone" + ("&channel=c" if action.startswith("channel") else ""))
    ended.set()
    for thread in lookers:
        thread.join()
    assert answers <= {(200, ""), (404, "TOPIC_NOT_FOUND"), (404, "CHANNEL_NOT_FOUND")}
    assert (200, "") in answers


def test_clients_that_read_nothing_hold_a_bounded_amount(start):
    node = start()
    node.connect().pub("t", b"\x01" * 1_000_000)
    path = "/topic/peek?topic=t&max_bytes=1048576"
    deaf = [node.wire(receive_buffer=4096) for _ in range(20)]
    for wire in deaf:
        wire.request("GET", path, b"", "")
    wait_until(lambda: node.call("GET", path).status == 503, "pages are refused")
    assert node.call("GET", path).json == {"message": "FAILED - too many unread pages"}
    assert node.rss() < 250 << 20
    for wire in deaf:
        wire.sock.close()
    wait_until(lambda: node.call("GET", path).status == 200, "pages are served again")
    assert len(node.call("GET", path).json["messages"][0]["body"]) == 1_000_000
    assert node.stop() == 0


def test_large_pages_over_tls(start, tmp_path):
    self_signed(tmp_path, "server", "localhost")
    node = start(f"--tls-cert={tmp_path}/server.pem", f"--tls-key={tmp_path}/server.key")
    node.connect().pub("t", *[b"%d" % number * 500 for number in range(100)])
    plain = peek(node, "t", max_messages=100)
    with tls_wire(node) as wire:
        for _ in range(2):
            wire.request("GET", "/topic/peek?topic=t&max_messages=100", b"", "")
            assert wire.reply().json == plain
    assert len(plain["messages"]) == 100
