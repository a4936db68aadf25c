"""Clients that request answers and do not read them hold a bounded amount of memory in total."""

import asyncio
import re
import socket
from types import SimpleNamespace

import pytest

from nsqc.httpd import untaken
from nsqc.httpd.pipeline import Pipeline
from tests.httpd.wire import Closed
from tests.support.daemon import talkers, wait_until
from tests.support.lookupd import LookupServer, Node

MIB = 1 << 20
TOO_MUCH = "reads no answers, and unread answers use too much memory"


class Taker:
    """A client that holds some MiB."""

    def __init__(self, mib: int) -> None:
        self.mib = mib
        self.gone = False

    def untaken(self) -> int:
        return self.mib * MIB

    def give_up(self) -> None:
        self.gone = True


@pytest.fixture
def now(monkeypatch):
    """A clock that is set by hand."""
    time = [100.0]
    monkeypatch.setattr(untaken, "monotonic", lambda: time[0])
    return time


def added(bound, now, *sizes: int) -> list[Taker]:
    takers = [Taker(size) for size in sizes]
    for taker in takers:
        now[0] += 0.1
        bound.add(taker)
    return takers


def gone(takers) -> list[bool]:
    return [taker.gone for taker in takers]


def test_as_long_as_there_is_room_anybody_may_read_slowly(now):
    bound = untaken.Untaken()
    takers = added(bound, now, 32, 32)
    now[0] += 3600
    assert (bound.full, gone(takers)) == (False, [False, False])


def test_who_has_taken_nothing_for_longest_goes_first(now):
    bound = untaken.Untaken()
    takers = added(bound, now, 10, 20, 30)
    now[0] += 60
    bound.add(takers[0])        # it has read something
    takers += added(bound, now, 20)
    assert gone(takers) == [False, True, False, False]


def test_those_who_take_more_slowly_stay(now):
    bound = untaken.Untaken()
    takers = added(bound, now, 30, 30)
    now[0] += 60
    takers[0].mib = 29
    takers += added(bound, now, 30)
    assert gone(takers) == [False, True, False]


def test_nobody_goes_at_once_unless_it_is_very_much(now):
    bound = untaken.Untaken()
    takers = added(bound, now, 40, 40, 40)
    assert gone(takers) == [False] * 3
    takers += added(bound, now, 40)
    assert gone(takers) == [True, False, False, False]
    takers += added(bound, now, 300)
    assert gone(takers) == [True, True, True, True, False]


def test_who_has_left_counts_no_more(now):
    bound = untaken.Untaken()
    takers = added(bound, now, 100)
    assert bound.full
    bound.discard(takers[0])
    bound.discard(takers[0])
    assert not bound.full
    assert gone(added(bound, now, 60, 1)) == [False, False]


@pytest.mark.parametrize("event", ["discard", "stall", "takes"])
def test_waiting_for_room(now, monkeypatch, event):
    monkeypatch.setattr(untaken, "_LOOK_S", 0)
    bound = untaken.Untaken()
    taker = added(bound, now, 200)[0]

    async def wait() -> None:
        task = asyncio.ensure_future(bound.room())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        if event == "discard":
            bound.discard(taker)
        elif event == "stall":
            now[0] += untaken.GRACE_S
        else:
            now[0] += 0.1
            taker.mib = 10
        await asyncio.wait_for(task, 60)

    asyncio.run(wait())
    assert taker.gone is (event == "stall")


@pytest.fixture
def talkative(start):
    """A daemon whose statistics are 4 MiB."""
    server = start()
    clients = talkers(server, 2200)
    yield server
    for client in clients:
        client.close()


def test_statistics_that_nobody_reads(talkative):
    before = talkative.rss()
    deaf = [talkative.wire(receive_buffer=4096) for _ in range(150)]
    for wire in deaf:
        wire.request("GET", "/stats?format=json", headers="X: y\r\n")
    with talkative.wire() as wire:
        for _ in range(10):
            wire.request("GET", "/ping")
            assert wire.reply().body == b"OK"
    port = int(wait_until(lambda: re.search(rf"client\(127\.0\.0\.1:(\d+)\) {TOO_MUCH}", talkative.log), seconds=60)[1])
    assert talkative.rss() - before < 300 * MIB
    dropped = next(wire for wire in deaf if wire.sock.getsockname()[1] == port)
    with pytest.raises((Closed, ConnectionError)):
        dropped.reply()
    for wire in deaf:
        wire.sock.close()
    assert talkative.call("GET", "/stats?format=json").json["topics"][0]["topic_name"] == "t"
    assert talkative.stop() == 0


def test_pipelined_statistics_that_nobody_reads(talkative):
    before = talkative.rss()
    with talkative.wire(receive_buffer=4096) as wire:
        for _ in range(300):
            wire.request("GET", "/stats")
        assert talkative.call("GET", "/ping").status == 200
        assert talkative.rss() - before < 100 * MIB
        wire.sock.settimeout(60)
        for _ in range(3):
            assert len(wire.reply().body) > 4 * MIB
    assert talkative.stop() == 0


def test_what_a_transport_holds_counts():
    """Short answers are handed to it as a whole."""
    site = SimpleNamespace(untaken=untaken.Untaken(), log=SimpleNamespace(warn=lambda *arguments: None))
    left = 100 * MIB
    writer = SimpleNamespace(unsent=lambda: left, transport=SimpleNamespace(abort=lambda: None))
    one, two = (Pipeline(site, None, writer, None) for _ in range(2))
    one.pause()
    assert site.untaken.full
    two.pause()
    assert (one.ended, two.ended) == (True, False)
    two.abandon()
    assert not site.untaken.full


def connect_slowly(server: LookupServer) -> socket.socket:
    """A connection whose client accepts little."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", server.http_port))
    return sock


def test_lists_of_the_lookup_server(tmp_path):
    server = LookupServer(tmp_path / "lookupd.log")
    try:
        node = Node(server, "n.example")
        for begin in range(0, 20_000, 1000):
            node.ok(*(f"REGISTER {'t' * 50}{number}" for number in range(begin, begin + 1000)))
        size = len(server.call("GET", "/nodes")[1])
        assert size > MIB
        wires = []
        for _ in range(100):
            wires.append(connect_slowly(server))
            wires[-1].sendall(b"GET /nodes HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        assert server.call("GET", "/ping")[1] == b"OK"
        wait_until(lambda: TOO_MUCH in server.log_path.read_text(errors="replace"), seconds=60)
        for wire in wires:
            wire.close()
        assert len(server.call("GET", "/nodes")[1]) == size
        assert server.stop() == 0
    finally:
        server.close()
