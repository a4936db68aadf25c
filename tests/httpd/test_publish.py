"""Publishing: arguments, the order of checks, limits, and the resulting statistics."""

import struct

import pytest

from tests.httpd.wire import request


def sized(*bodies):
    return struct.pack(">i", len(bodies)) + b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def topic(server, name):
    return server.call("GET", f"/stats?format=json&topic={name}").json["topics"][0]


@pytest.mark.parametrize(("value", "status"), [
    ("0", 200), ("3600000", 200), ("%2B5", 200), ("-0", 200), ("0" * 5000 + "7", 200),
    ("3600001", 400), ("-1", 400), ("abc", 400), ("", 400), ("+5", 400), ("1.5", 400), ("0x10", 400), ("1_0", 400),
    ("9223372036854775808", 400), ("9" * 5000, 400), ("%D9%A1", 400),
])
def test_defer(server, value, status):
    reply = server.call("POST", f"/pub?topic=defer&defer={value}", b"x")
    assert reply.status == status
    if status == 400:
        assert reply.json == {"message": "INVALID_DEFER"}


def test_order_of_checks(start):
    server = start("--max-msg-size=5")
    assert server.call("POST", "/pub?%zz", b"123456").json == {"message": "MSG_TOO_BIG"}
    assert server.call("POST", "/pub?%zz").json == {"message": "MSG_EMPTY"}
    assert server.call("POST", "/pub?%zz&topic=t/x", b"1").json == {"message": "INVALID_REQUEST"}
    assert server.call("POST", "/pub?topic=t/x&defer=x", b"1").json == {"message": "INVALID_TOPIC"}
    assert server.call("GET", "/stats?format=json").json["topics"] == []
    assert server.call("POST", "/pub?defer=x&topic=made", b"1").json == {"message": "INVALID_DEFER"}
    assert server.call("POST", "/mpub?topic=made2", b"123456").json == {"message": "MSG_TOO_BIG"}
    names = [entry["topic_name"] for entry in server.call("GET", "/stats?format=json").json["topics"]]
    assert names == ["made", "made2"]


def test_first_of_several_arguments_counts(server):
    assert server.call("POST", "/pub?topic=first&topic=t/x&defer=0&defer=x", b"x").status == 200
    assert topic(server, "first")["message_count"] == 1


def test_names_with_escapes(server):
    assert server.call("POST", "/pub?topic=esc%61ped%23ephemeral", b"x").status == 200
    assert topic(server, "escaped%23ephemeral")["message_count"] == 1


def test_binary(server):
    body = sized(b"one", b"\n\0", b"x" * 1000)
    for value in ("true", "1", "yes", ""):
        assert server.call("POST", f"/mpub?topic=binary&binary={value}", body).body == b"OK"
    # Bytes after the announced messages are ignored, as in nsqd.
    assert server.call("POST", "/mpub?topic=binary&binary=true", body + b"more").body == b"OK"
    seen = topic(server, "binary")
    assert (seen["message_count"], seen["message_bytes"]) == (15, 5 * 1005)


def test_large_bodies(server):
    big = bytes(range(256)) * 4096
    assert server.call("POST", "/pub?topic=large", big).body == b"OK"
    assert server.call("POST", "/mpub?topic=large", (b"x" * 99_999 + b"\n") * 52).body == b"OK"
    seen = topic(server, "large")
    assert (seen["message_count"], seen["message_bytes"]) == (53, len(big) + 52 * 99_999)


def test_deleted_topic_is_created_again(server):
    with server.wire() as wire:
        for _ in range(3):
            wire.request("POST", "/pub?topic=again", b"x")
            wire.request("POST", "/topic/delete?topic=again")
        assert [wire.reply().status for _ in range(6)] == [200] * 6
        wire.request("POST", "/pub?topic=again", b"x")
        assert wire.reply().body == b"OK"
    assert topic(server, "again")["message_count"] == 1


def test_more_targets_than_are_remembered(server):
    # The memory of known targets is cleared after 4096 of them. A connection may create 1,000 topics at once.
    for first in range(0, 4200, 600):
        with server.wire() as wire:
            for number in range(first, first + 600):
                wire.request("POST", f"/pub?topic=many-{number % 4200}%23ephemeral".replace("%23", "%2Dx"), b"x")
                assert wire.reply().body == b"OK"


def test_header_value_that_looks_like_a_publish(server):
    """Heads are learned only where a request begins: otherwise a client could redirect other clients' messages."""
    disguised = b"POST /pub?topic=honest HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
    with server.wire() as wire:
        wire.send(b"POST /pub?topic=thief HTTP/1.1\r\nX: ")
        # The rest has to arrive in a separate read.
        server.call("GET", "/ping")
        wire.send(disguised)
        assert wire.reply().body == b"OK"
        wire.send(disguised * 2)
        assert [wire.reply().body, wire.reply().body] == [b"OK", b"OK"]
    assert topic(server, "thief")["message_count"] == 1
    assert topic(server, "honest")["message_count"] == 2


def test_repeated_heads(server):
    with server.wire() as wire:
        for size in (5, 5, 6, 5):
            wire.request("POST", "/pub?topic=repeated", b"x" * size)
            assert wire.reply().body == b"OK"
        known = request("POST", "/pub?topic=repeated", b"12345")
        # Known ones, a new one between them, and one in two pieces.
        wire.send(known * 3 + request("POST", "/pub?topic=repeated", b"1234567") + known + known[:-2])
        assert [wire.reply().body for _ in range(5)] == [b"OK"] * 5
        wire.send(known[-2:] + request("GET", "/ping"))
        assert [wire.reply().body for _ in range(2)] == [b"OK"] * 2
    seen = topic(server, "repeated")
    assert (seen["message_count"], seen["message_bytes"]) == (10, 21 + 5 * 5 + 7)


def test_repeated_heads_of_a_deleted_topic(server):
    """Their requests stay in order among others, complete or still arriving."""
    kept, gone = request("POST", "/pub?topic=kept", b"12345"), request("POST", "/pub?topic=gone", b"1234567")
    with server.wire() as wire:
        wire.send(kept + gone)
        wire.request("POST", "/topic/delete?topic=gone")
        wire.send((kept + gone) * 3 + kept)
        assert [wire.reply().status for _ in range(10)] == [200] * 10
        wire.send(gone[:-2])
        server.call("POST", "/topic/delete?topic=gone")
        wire.send(gone[-2:] + kept)
        assert [wire.reply().body for _ in range(2)] == [b"OK"] * 2
    assert topic(server, "kept")["message_count"] == 6
    assert topic(server, "gone")["message_count"] == 1
