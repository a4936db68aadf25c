"""Limits on sizes and times: no client costs the server more, however it behaves."""

import socket

import pytest

from tests.httpd.wire import chunked, request
from tests.support.patience import WAIT_SECONDS

KIB = 1024
MIB = 1024 * 1024


@pytest.mark.parametrize("path", ["/pub?topic=t", "/config/log_level"])
def test_announced_body_is_refused_before_it_comes(server, path):
    word = "MSG_TOO_BIG" if path.startswith("/pub") else "INVALID_VALUE"
    method = "POST" if path.startswith("/pub") else "PUT"
    with server.wire() as wire:
        wire.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000000\r\n\r\n".encode())
        reply = wire.reply()
        assert (reply.status, reply.json) == (413, {"message": word})
        assert reply.headers["connection"] == "close"
        assert wire.is_closed()


def test_connection_stays_behind_a_body_a_little_too_big(start):
    server = start("--max-msg-size=10")
    with server.wire() as wire:
        wire.send(request("POST", "/pub?topic=t", b"x" * 11) + request("POST", "/pub?topic=t", b"x" * 10))
        assert [wire.reply().status, wire.reply().status] == [413, 200]


@pytest.mark.parametrize(("path", "word"), [
    ("/pub?topic=t", "MSG_TOO_BIG"),
    ("/mpub?topic=t", "BODY_TOO_BIG"),
    ("/mpub?topic=t&binary=true", "BAD_BODY"),
    ("/mpub", "MISSING_ARG_TOPIC"),
])
def test_endless_chunks_are_refused_while_they_come(start, path, word):
    server = start("--max-msg-size=1000", "--max-body-size=5000")
    with server.wire() as wire:
        wire.send(chunked(path)[:-5])
        # The server reads a little more, because its answer must not be lost, and then stops.
        with pytest.raises(OSError):
            send_for_ever(wire, b"64\r\n" + b"x" * 100 + b"\r\n")
    with server.wire() as wire:
        wire.send(chunked(path)[:-5] + (b"64\r\n" + b"x" * 100 + b"\r\n") * 100)
        reply = wire.reply()
        assert (reply.status, reply.json) == (400 if "MISSING" in word else 413, {"message": word})


def send_for_ever(wire, data):
    while True:
        wire.send(data)


def test_text_lines_are_checked_in_nsqds_order(start):
    server = start("--max-msg-size=6", "--max-body-size=20")
    long_line_first = b"1234567\n" + b"1234\n" * 5
    assert server.call("POST", "/mpub?topic=t", b"1234567\n1234").json == {"message": "MSG_TOO_BIG"}
    with server.wire() as wire:
        wire.send(chunked("/mpub?topic=t", long_line_first))
        assert wire.reply().json == {"message": "MSG_TOO_BIG"}
    with server.wire() as wire:
        wire.send(chunked("/mpub?topic=t", b"1234\n" + b"x" * 30))
        assert wire.reply().json == {"message": "BODY_TOO_BIG"}


def test_bodies_that_nobody_reads_are_not_kept(server):
    before = server.rss()
    with server.wire() as wire:
        size = 64 * MIB
        wire.send(f"POST /topic/create?topic=big HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
        for _ in range(64):
            wire.send(bytes(MIB))
        assert wire.reply().status == 200
    assert server.rss() - before < 16 * MIB


@pytest.mark.parametrize("head", [
    b"GET /ping HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 70 * KIB + b"\r\n\r\n",
    b"GET /ping HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 40_000 + b"\r\n",
    b"GET /" + b"y" * 70 * KIB + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /ping HTTP/1.1\r\nHost: x\r\n" + b"y" * 70 * KIB + b": z\r\n\r\n",
], ids=["value", "headers", "target", "name"])
@pytest.mark.parametrize("piece", [1000, 1 << 20])
def test_head_above_the_limit(server, head, piece):
    with server.wire() as wire:
        try:
            for at in range(0, len(head), piece):
                wire.send(head[at:at + piece])
        except ConnectionError:
            # Answered and closed before everything was sent.
            pass
        assert wire.reply().body == b"431 Request Header Fields Too Large"


def test_head_below_the_limit(server):
    with server.wire() as wire:
        wire.send(b"GET /ping?" + b"y" * 30 * KIB + b" HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 30 * KIB + b"\r\n\r\n")
        assert wire.reply().body == b"OK"


@pytest.mark.parametrize("rest", [b"0\r\nTrailer: ", b"5;extension="], ids=["trailer", "extension"])
def test_endless_lines_within_a_chunked_body(server, rest):
    with server.wire() as wire:
        wire.send(chunked("/pub?topic=t", b"x" * 1000)[:-5] + rest)
        with pytest.raises(OSError):
            send_for_ever(wire, b"y" * 1000)
    assert server.call("GET", "/ping").body == b"OK"


def test_unfinished_requests_end_and_idle_connections_stay(start):
    server = start("--http-header-timeout=2s")
    with server.wire() as idle, server.wire() as silent, server.wire() as head, server.wire() as body, \
            server.wire() as chunks, server.wire() as method:
        idle.request("GET", "/ping")
        assert idle.reply().body == b"OK"
        head.send(b"GET /ping HTTP/1.1\r\nHost:")
        body.send(request("POST", "/pub?topic=t", b"xx")[:-1])
        chunks.send(chunked("/pub?topic=t", b"xx")[:-5])
        method.send(b"GE")
        for wire in (silent, head, body, chunks, method):
            assert wire.is_closed()
        idle.request("GET", "/ping")
        assert idle.reply().body == b"OK"


def test_a_head_that_drips_ends_too(start):
    server = start("--http-header-timeout=300ms")
    with server.wire() as wire:
        wire.send(b"GET /ping HTTP/1.1\r\nHost: x\r\nX: ")
        wire.sock.settimeout(0.02)
        for _ in range(1000):
            try:
                wire.send(b"y")
                assert wire.sock.recv(1) == b""
                return
            except TimeoutError:
                continue
            except ConnectionError:
                return
        pytest.fail("the connection is still open")


def parts_until_closed(wire, parts, pause_s: float) -> int:
    """How many parts a connection takes, one after each pause, before it is closed."""
    wire.sock.settimeout(pause_s)
    for number, part in enumerate(parts):
        try:
            assert wire.sock.recv(1) == b""
            return number
        except TimeoutError:
            wire.send(part)
        except ConnectionError:
            return number
    wire.sock.settimeout(WAIT_SECONDS)
    return len(parts)


def test_a_slow_body_that_goes_on_is_taken(start):
    """It takes twice the deadline of a head."""
    server = start("--http-header-timeout=2s")
    with server.wire() as wire:
        data = request("POST", "/pub?topic=t", b"x" * 20 * 2048)
        head = len(data) - 20 * 2048
        wire.send(data[:head])
        parts = [data[head + at * 2048:head + (at + 1) * 2048] for at in range(20)]
        assert parts_until_closed(wire, parts, 0.2) == 20
        assert wire.reply().body == b"OK"


@pytest.mark.parametrize("as_chunks", [False, True])
def test_a_body_that_creeps_ends(start, as_chunks):
    server = start("--http-header-timeout=300ms")
    with server.wire() as wire:
        if as_chunks:
            wire.send(chunked("/pub?topic=t", b"x")[:-5])
            part = b"1\r\ny\r\n"
        else:
            wire.send(request("POST", "/pub?topic=t", b"x" * 1000)[:-1000])
            part = b"y"
        assert parts_until_closed(wire, [part] * 200, 0.1) < 200
    assert server.call("GET", "/stats?format=json").json["topics"] == []


def test_client_that_does_not_read_is_not_read_from(start):
    server = start()
    for number in range(50):
        server.call("POST", f"/topic/create?topic=t{number}")
    before = server.rss()
    # Long ones: the kernel's buffers must not hold too many of them.
    asked = request("GET", "/stats?format=json", headers="X: " + "y" * 8000 + "\r\n") * 100
    with server.wire(receive_buffer=4096) as wire:
        wire.sock.settimeout(0.5)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 64 * MIB:
                sent += wire.sock.send(asked[sent % len(asked):])
        assert sent < 32 * MIB
        assert server.rss() - before < 32 * MIB
        assert server.call("GET", "/ping").body == b"OK"
        # All whole requests are answered once the client reads.
        wire.sock.settimeout(WAIT_SECONDS)
        size = len(asked) // 100
        for _ in range(sent // size):
            assert wire.reply().status == 200


def test_expect_continue(start):
    server = start("--max-msg-size=100")
    with server.wire() as wire:
        data = request("POST", "/pub?topic=t", b"x" * 100, "Expect: 100-continue\r\n")
        wire.send(data[:-100])
        assert wire.reply().status == 100
        wire.send(data[-100:])
        assert wire.reply().body == b"OK"
        data = chunked("/pub?topic=t", b"x" * 100, headers="expect: 100-Continue\r\n")
        wire.send(data)
        assert wire.reply().status == 100
        assert wire.reply().body == b"OK"


@pytest.mark.parametrize(("path", "size", "status"), [
    ("/pub?topic=t", 101, 413),
    ("/nothing", 5, 404),
    ("/ping", 5, 405),
])
def test_no_continue_for_a_body_that_is_not_wanted(start, path, size, status):
    server = start("--max-msg-size=100")
    with server.wire() as wire:
        wire.send(request("POST", path, b"x" * size, "Expect: 100-continue\r\n")[:-size])
        reply = wire.reply()
        assert (reply.status, reply.headers["connection"]) == (status, "close")
        assert wire.is_closed()


def test_continue_comes_in_its_turn(server):
    data = request("POST", "/pub?topic=in-order", b"x", "Expect: 100-continue\r\n")
    with server.wire() as wire:
        wire.send(request("POST", "/topic/create?topic=in-order") + request("POST", "/topic/pause?topic=in-order") + data)
        assert [wire.reply().status for _ in range(4)] == [200, 200, 100, 200]


def test_a_reset_in_the_middle_harms_nobody(server):
    for cut in (5, 40, -1):
        wire = server.wire()
        wire.send(request("POST", "/topic/pause?topic=gone", b"xyz")[:cut])
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        wire.sock.close()
    assert server.call("GET", "/ping").body == b"OK"
