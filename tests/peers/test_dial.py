"""Outgoing connections: names that resolve slowly or not at all, endpoints that do not answer."""

import asyncio
import socket
import threading

import pytest
import uvloop

from nsqc.peers import http
from nsqc.peers.http import Dialer, seconds
from tests.support.patience import WAIT_SECONDS


def test_a_limit_of_0_is_none():
    assert (seconds(0), seconds(1_500_000_000)) == (None, 1.5)


class Call(asyncio.Protocol):
    """A caller that records whether it was aborted."""

    def __init__(self):
        self.transport = None
        self.aborted = False

    def connection_made(self, transport):
        self.transport = transport

    def abort(self):
        self.aborted = True
        if self.transport is not None:
            self.transport.abort()


@pytest.fixture
def calls():
    return []


@pytest.fixture
def make(calls):
    def made() -> Call:
        calls.append(Call())
        return calls[-1]

    return made


def test_the_next_endpoint_is_tried_if_one_refuses(monkeypatch, make, calls):
    with socket.create_server(("127.0.0.1", 0)) as door, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        places = [(socket.AF_INET, closed.getsockname()), (socket.AF_INET, door.getsockname())]

        async def resolve(address, kind):
            return places

        async def work():
            dialer = Dialer(asyncio.get_running_loop())
            monkeypatch.setattr(dialer, "resolve", resolve)
            call = await dialer.connect(make, "some.name:1", 5)
            assert call.transport.get_extra_info("peername") == door.getsockname()
            call.abort()
            places.pop()
            with pytest.raises(ConnectionRefusedError):
                await dialer.connect(make, "some.name:1", 5)

        uvloop.run(work())
    assert [call.aborted for call in calls] == [True, True, True]


def test_an_endpoint_that_swallows_packets_uses_only_its_share(monkeypatch, make, calls):
    # A full backlog: the kernel drops further connection attempts, as a firewall does.
    with socket.create_server(("127.0.0.1", 0)) as door, socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())

        async def resolve(address, kind):
            return [(socket.AF_INET, full.getsockname()), (socket.AF_INET, door.getsockname())]

        async def work():
            loop = asyncio.get_running_loop()
            dialer = Dialer(loop)
            monkeypatch.setattr(dialer, "resolve", resolve)
            call = await dialer.connect(make, "some.name:1", 2)
            assert call.transport.get_extra_info("peername") == door.getsockname()
            call.abort()

        uvloop.run(work())
        for filler in fillers:
            filler.close()


def test_a_resolver_that_hangs_is_asked_once_and_nobody_waits_for_it(monkeypatch, make):
    asked, answer = [], threading.Event()
    real = socket.getaddrinfo

    def hanging(host, port, *arguments, **more):
        if host != "slow.example":
            return real(host, port, *arguments, **more)
        if more.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "not numeric")
        asked.append(host)
        answer.wait(WAIT_SECONDS)
        return real("127.0.0.1", port, *arguments, **more)

    monkeypatch.setattr(http.socket, "getaddrinfo", hanging)

    async def work():
        dialer = Dialer(asyncio.get_running_loop())
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await dialer.connect(make, "slow.example:1", 0.02)
        assert asked == ["slow.example"]
        late = asyncio.ensure_future(dialer.resolve("slow.example:1", socket.SOCK_STREAM))
        await asyncio.sleep(0)
        answer.set()
        assert await late == [(socket.AF_INET, ("127.0.0.1", 1))]
        # The answer is not cached: names may move.
        await dialer.resolve("slow.example:1", socket.SOCK_STREAM)
        assert asked == ["slow.example"] * 2

    uvloop.run(work())


def test_an_answer_after_the_end_of_the_loop_is_nobodys(monkeypatch):
    answer = threading.Event()
    failures = []
    monkeypatch.setattr(threading, "excepthook", failures.append)

    def hanging(host, port, *arguments, **more):
        if more.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "not numeric")
        answer.wait(WAIT_SECONDS)
        return []

    monkeypatch.setattr(http.socket, "getaddrinfo", hanging)
    threads = []

    async def work():
        dialer = Dialer(asyncio.get_running_loop())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await dialer.resolve("slow.example:1", socket.SOCK_STREAM)
        threads.extend(thread for thread in threading.enumerate() if thread.name == "nsqc-resolver")

    uvloop.run(work())
    assert threads
    answer.set()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert failures == []


def test_numbers_need_no_resolver():
    async def work():
        dialer = Dialer(asyncio.get_running_loop())
        assert await dialer.resolve("[::1]:8125", socket.SOCK_DGRAM) == [(socket.AF_INET6, ("::1", 8125, 0, 0))]
        assert await dialer.resolve("127.0.0.1:1", socket.SOCK_STREAM) == [(socket.AF_INET, ("127.0.0.1", 1))]
        assert not [thread for thread in threading.enumerate() if thread.name == "nsqc-resolver"]

    uvloop.run(work())


def test_names_that_do_not_exist():
    async def work():
        dialer = Dialer(asyncio.get_running_loop())
        for address in ("no-such-host.invalid:1", "x" * 70 + ".example:1"):
            with pytest.raises((OSError, ValueError)):
                await dialer.resolve(address, socket.SOCK_STREAM)

    uvloop.run(work())
