"""Requests as they may arrive: complete, in pieces, many at once, in every form that nsqd accepts."""

import random

import pytest

from tests.httpd.wire import chunked, request

# Each with the status and the body of its answer.
TRANSCRIPT = [
    (request("GET", "/ping"), 200, b"OK"),
    (request("POST", "/pub?topic=pieces", b"hello"), 200, b"OK"),
    (request("GET", "/nothing"), 404, b'{"message":"NOT_FOUND"}'),
    (chunked("/pub?topic=pieces", b"ab", b"c" * 20, trailer=b"Trailer: x\r\n"), 200, b"OK"),
    (request("BREW", "/coffee"), 404, b'{"message":"NOT_FOUND"}'),
    (request("POST", "/topic/pause?topic=pieces"), 200, b""),
    (request("POST", "/pub?topic=pieces", b"x" * 3000), 200, b"OK"),
    (request("POST", "/topic/unpause?topic=pieces"), 200, b""),
    (request("POST", "/mpub?topic=pieces", b"a\n\nb\n", "User-Agent: test\r\n"), 200, b"OK"),
    (request("POST", "/pub?topic=t/x", b"y"), 400, b'{"message":"INVALID_TOPIC"}'),
    (b"GET http://x/ping?a=b HTTP/1.1\r\nhost: x\r\n\r\n", 200, b"OK"),
    (b"GET /p%69ng HTTP/1.1\r\nHOST: x\r\n\r\n", 200, b"OK"),
    (b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 200, b"OK"),
    (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 200, b""),
    (b"GET /ping HTTP/1.2\r\nHost: x\r\n\r\n", 200, b"OK"),
    ("GET /ping?t=\u00fc HTTP/1.1\r\nHost: x\r\n\r\n".encode(), 200, b"OK"),
    (b"GET /ping HTTP/1.1\nHost: x\n\n", 200, b"OK"),
    (b"\r\nGET /ping HTTP/1.1\r\nHost: x\r\n\r\n", 200, b"OK"),
    (b"GET /ping HTTP/1.1\r\nHost:\r\n\r\n", 200, b"OK"),
]


def check(wire, expected):
    for _, status, body in expected:
        reply = wire.reply()
        assert (reply.status, reply.body) == (status, body)


def test_one_by_one(server):
    with server.wire() as wire:
        for step in TRANSCRIPT:
            wire.send(step[0])
            check(wire, [step])


def test_many_at_once_are_answered_in_order(server):
    with server.wire() as wire:
        wire.send(b"".join(step[0] for step in TRANSCRIPT * 20))
        check(wire, TRANSCRIPT * 20)


def test_byte_by_byte(server):
    with server.wire() as wire:
        wire.sock.setsockopt(6, 1, 1)
        for step in TRANSCRIPT:
            for at in range(len(step[0])):
                wire.send(step[0][at:at + 1])
            check(wire, [step])


@pytest.mark.parametrize("seed", range(8))
def test_cut_at_random(server, seed):
    chance = random.Random(seed)
    server.call("POST", "/topic/create?topic=pieces")       # its pause may come first
    steps = list(TRANSCRIPT)
    chance.shuffle(steps)
    data = b"".join(step[0] for step in steps * 3)
    with server.wire() as wire:
        wire.sock.setsockopt(6, 1, 1)
        while data:
            size = chance.choice((1, 2, 7, 40, 300))
            wire.send(data[:size])
            data = data[size:]
        check(wire, steps * 3)


def test_what_was_published_arrived(start):
    server = start()
    with server.wire() as wire:
        for step in TRANSCRIPT:
            wire.send(step[0])
            wire.reply()
    topic = server.call("GET", "/stats?format=json&topic=pieces").json["topics"][0]
    assert topic["message_count"] == 5
    assert topic["message_bytes"] == 5 + 22 + 3000 + 2


def test_http_1_0_closes_unless_asked_to_stay(server):
    with server.wire() as wire:
        wire.send(b"GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        reply = wire.reply()
        assert (reply.version, reply.headers["connection"]) == ("HTTP/1.0", "keep-alive")
        wire.send(b"GET /ping HTTP/1.0\r\n\r\n")
        reply = wire.reply()
        assert reply.version == "HTTP/1.0"
        assert "connection" not in reply.headers
        assert wire.is_closed()


def test_http_1_0_publish(server):
    with server.wire() as wire:
        wire.send(b"POST /pub?topic=old HTTP/1.0\r\nContent-Length: 1\r\n\r\nx")
        assert (wire.reply().body, wire.is_closed()) == (b"OK", True)


def test_connection_close_is_answered_and_kept(server):
    with server.wire() as wire:
        wire.send(request("POST", "/pub?topic=bye", b"x", "Connection: close\r\n") + request("GET", "/ping"))
        reply = wire.reply()
        assert (reply.body, reply.headers["connection"]) == (b"OK", "close")
        assert wire.is_closed()


def test_head_has_a_length_and_no_body(server):
    with server.wire() as wire:
        wire.request("HEAD", "/stats")
        reply = wire.reply(head=True)
        assert (reply.status, reply.headers["allow"]) == (405, "GET, OPTIONS")
        assert int(reply.headers["content-length"]) > 0
        wire.request("GET", "/ping")
        assert wire.reply().body == b"OK"


def test_requests_before_the_end_of_input_are_answered(server):
    with server.wire() as wire:
        wire.send(request("POST", "/topic/create?topic=eof") + request("POST", "/topic/pause?topic=eof")
                  + request("POST", "/pub?topic=eof", b"x"))
        wire.sock.shutdown(1)
        assert [wire.reply().status for _ in range(3)] == [200] * 3
        assert wire.is_closed()


def test_connect_ends_the_connection(server):
    with server.wire() as wire:
        wire.send(b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n" + request("POST", "/topic/create?topic=beyond"))
        reply = wire.reply()
        assert (reply.status, reply.headers["connection"]) == (404, "close")
        assert wire.is_closed()


@pytest.mark.parametrize(("sent", "status", "text"), [
    (b"GET /ping HTTP/1.1\r\n\r\n", 400, b"400 Bad Request: missing required Host header"),
    (b"GET /ping HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, b"400 Bad Request: too many Host headers"),
    (b"GET /ping HTTP/2.0\r\nHost: a\r\n\r\n", 505,
     b"505 HTTP Version Not Supported: unsupported protocol version"),
    (b"GET /ping RTSP/1.0\r\nHost: a\r\n\r\n", 400, b"400 Bad Request"),
    (b"GET /ping HTTP/1.10\r\nHost: a\r\n\r\n", 400, b"400 Bad Request"),
    (b"GET /ping http/1.1\r\nHost: a\r\n\r\n", 400, b"400 Bad Request"),
    (b"GET  /ping HTTP/1.1\r\nHost: a\r\n\r\n", 400, b"400 Bad Request"),
    (b"GET /ping HTTP/1.1 \r\nHost: a\r\n\r\n", 400, b"400 Bad Request"),
    (b"GET ping HTTP/1.1\r\nHost: a\r\n\r\n", 400, b"400 Bad Request"),
    (b"GET /ping HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, b"400 Bad Request: malformed Host header"),
    (b"GET /ping HTTP/1.1\r\nHost: a@b\r\n\r\n", 400, b"400 Bad Request: malformed Host header"),
    (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", 400, b"400 Bad Request: CONNECT with a body"),
    (b"GET /ping\r\n\r\n", 400, b"400 Bad Request"),
    (b"nonsense\r\n\r\n", 400, b"400 Bad Request"),
    (b"\x16\x03\x01\x02\x00\x01\x00", 400, b"400 Bad Request"),
    (b"  V2", 400, b"400 Bad Request"),
    (b"GET /pi ng HTTP/1.1\r\nHost: a\r\n\r\n", 400, b"400 Bad Request"),
    (b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400, b"400 Bad Request"),
    (b"GET /ping HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400, b"400 Bad Request"),
    (b"POST /pub?topic=t HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400, b"400 Bad Request"),
    (b"POST /pub?topic=t HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", 400,
     b"400 Bad Request"),
    (b"POST /pub?topic=t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501,
     b"501 Not Implemented: Unsupported transfer encoding"),
    (b"POST /pub?topic=t HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nContent-Length: 1\r\n\r\nx", 417,
     b"417 Expectation Failed"),
])
def test_refused_below_all_routes(server, sent, status, text):
    with server.wire() as wire:
        wire.send(request("GET", "/ping") + sent)
        assert wire.reply().body == b"OK"
        reply = wire.reply()
        assert (reply.status, reply.body) == (status, text)
        assert reply.headers["content-type"] == "text/plain; charset=utf-8"
        assert reply.headers["connection"] == "close"
        assert wire.is_closed()


@pytest.mark.parametrize(("path", "status", "word"), [
    ("/pub?topic=t", 500, "INTERNAL_ERROR"),
    ("/mpub?topic=t", 500, "INTERNAL_ERROR"),
    ("/mpub?topic=t&binary=true", 413, "BAD_BODY"),
    ("/topic/delete?topic=t", 400, "INVALID_REQUEST"),
    ("/nothing", 404, "NOT_FOUND"),
])
@pytest.mark.parametrize("form", ["malformed chunk", "end in a chunk", "end in a length"])
def test_body_that_cannot_be_read(server, path, status, word, form):
    with server.wire() as wire:
        if form == "malformed chunk":
            wire.send(chunked(path)[:-5] + b"zz\r\nxx")
        elif form == "end in a chunk":
            wire.send(chunked(path)[:-5] + b"5\r\nx")
            wire.sock.shutdown(1)
        else:
            wire.send(request("POST", path, b"xxx")[:-2])
            wire.sock.shutdown(1)
        reply = wire.reply()
        assert (reply.status, reply.json) == (status, {"message": word})
        assert wire.is_closed()
