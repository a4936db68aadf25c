"""Thousands of requests in one connection: answered in order, over several loop iterations."""

import socket

from nsqc.httpd import turn
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


def test_a_share_ends_and_begins_again(monkeypatch):
    now = [5.0]
    calls = []

    class Loop:
        call_soon = calls.append

    monkeypatch.setattr(turn, "monotonic", lambda: now[0])
    monkeypatch.setattr(turn.asyncio, "get_running_loop", lambda: Loop)
    one = turn.Turn()
    assert not one.over()
    now[0] += turn.SHARE_S / 2
    assert not one.over()
    now[0] += turn.SHARE_S
    assert one.over()
    calls.pop()()
    assert not one.over()
    assert len(calls) == 1
