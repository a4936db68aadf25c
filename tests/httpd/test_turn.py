"""Thousands of requests in one connection: answered in order, over several loop iterations."""

import signal
import socket

from tests.httpd.wire import request

COUNT = 4000


def mixed(count: int) -> tuple[bytes, list[int]]:
    """Requests of all kinds, and the statuses of their answers."""
    kinds = [(request("GET", "/ping"), 200), (request("POST", "/pub?topic=turn", b"x"), 200),
             (request("GET", "/nothing"), 404), (request("GET", "/stats?topic=turn"), 200),
             (request("POST", "/mpub?topic=turn", b"a\nb"), 200), (request("POST", "/topic/pause?topic=none"), 404)]
    picked = [kinds[n % len(kinds)] for n in range(count)]
    return b"".join(data for data, _ in picked), [status for _, status in picked]


def test_all_are_answered_in_order(start):
    server = start()
    data, statuses = mixed(COUNT)
    with server.wire() as wire, server.wire() as other:
        wire.send(data)
        other.request("GET", "/ping")
        assert other.reply().status == 200
        assert [wire.reply().status for _ in range(COUNT)] == statuses
    depth = server.stats("turn")["depth"]
    assert depth == sum(1 if n % 6 == 1 else 2 for n in range(COUNT) if n % 6 in (1, 4))


def test_what_was_sent_before_the_end_is_answered(start):
    server = start()
    data, statuses = mixed(600)
    with server.wire() as wire:
        wire.send(data)
        wire.sock.shutdown(socket.SHUT_WR)
        assert [wire.reply().status for _ in range(600)] == statuses
        assert wire.is_closed()


def test_a_client_that_leaves_amid_its_requests_harms_nobody(start):
    server = start()
    for _ in range(5):
        with server.wire() as wire:
            wire.send(mixed(600)[0])
    assert server.call("GET", "/ping").status == 200
    assert server.stop() == 0
    assert "panic" not in server.log


def test_a_stop_amid_requests_is_clean(start):
    server = start()
    with server.wire() as wire:
        wire.send(mixed(COUNT)[0])
        wire.reply()
        assert server.stop() == 0


def test_one_request_does_not_wait_for_thousands_of_another_client(start):
    server = start("--max-create-rate=0")
    flood = b"".join(request("POST", f"/topic/create?topic=t{n}") for n in range(COUNT))
    with server.wire() as before, server.wire() as wire, server.wire() as after:
        for one in (before, wire, after):
            one.request("GET", "/ping")
            assert one.reply().status == 200
        # Everything has arrived when the daemon reads.
        server.process.send_signal(signal.SIGSTOP)
        wire.send(flood)
        for one in (before, after):
            one.request("GET", f"/stats?format=json&topic=t{COUNT // 4}")
        server.process.send_signal(signal.SIGCONT)
        for one in (before, after):
            assert not one.reply().json["topics"]
        assert [wire.reply().status for _ in range(COUNT)] == [200] * COUNT


def test_a_long_read_is_parsed_in_pieces_wherever_they_end(start):
    """Bodies, heads and chunks longer than a piece, at all offsets to piece boundaries."""
    server = start()
    chunked = (b"POST /mpub?topic=piece HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
               + b"".join(b"2\r\nx\n\r\n" for _ in range(700)) + b"0\r\n\r\n")
    parts = [request("POST", "/pub?topic=piece", b"y" * 5000), chunked, request("GET", "/ping" + "?" + "z" * 4500)]
    data = b"".join(request("GET", f"/ping?{'f' * pad}") + b"".join(parts) for pad in range(0, 4096, 97))
    rounds = len(range(0, 4096, 97))
    with server.wire() as wire:
        wire.send(data)
        assert [wire.reply().status for _ in range(4 * rounds)] == [200] * (4 * rounds)
    assert server.stats("piece")["depth"] == 701 * rounds


def test_a_head_that_is_too_long_is_refused_behind_thousands_of_requests(start):
    server = start()
    with server.wire() as wire:
        wire.send(request("GET", "/ping") * COUNT + b"GET /ping HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 70_000)
        assert [wire.reply().status for _ in range(COUNT)] == [200] * COUNT
        assert wire.reply().status == 431
        assert wire.is_closed()
