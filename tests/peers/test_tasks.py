"""The tasks that talk to peers survive unexpected exceptions: here, bugs that the tests inject."""

import asyncio
import contextlib
import errno

import pytest

from nsqc.options.declared import Options, Settings
from nsqc.peers import lookup as lookup_peer
from nsqc.peers.channel_lookup import ChannelLookup
from nsqc.peers.http import Dialer
from nsqc.peers.lookup import LookupPeer
from nsqc.peers.statsd import Statsd
from nsqc.store.work import Slicer
from tests.support.log import RecordingLog

SECONDS = 60


class Bug(Exception):
    """An exception that no handler names."""


@contextlib.asynccontextmanager
async def running(work):
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_registration_goes_on(lookupd, monkeypatch):
    monkeypatch.setattr(lookup_peer, "FIRST_PAUSE_S", 0.01)
    server, log, calls = lookupd(), RecordingLog(), []

    def identity():
        calls.append(1)
        if len(calls) < 4:
            raise (Bug("one"), RecursionError("two"), KeyError("three"))[len(calls) - 1]
        return b"{}"

    async def play():
        loop = asyncio.get_running_loop()
        peer = LookupPeer(server.address, loop, Dialer(loop), Settings(Options()), log, identity,
                          lambda: iter([b"REGISTER t\n"]))
        async with running(peer.run()) as task:
            await until(lambda: server.commands() == ["REGISTER t"])
            assert not task.done()
            assert peer.attempted.is_set()

    asyncio.run(play())
    text = "\n".join(log.lines)
    assert "Bug('one')" in text and "RecursionError('two')" in text and "KeyError('three')" in text


class Topic:
    """A topic some of whose channels cannot be created. fails: their names."""

    def __init__(self, name: bytes, fails: dict[bytes, Exception]):
        self.name, self.fails = name, fails
        self.made: list[bytes] = []
        self.starts = 0

    def get_channel(self, name: bytes) -> None:
        if name in self.fails:
            raise self.fails[name]
        self.made.append(name)

    def start(self) -> None:
        self.starts += 1


class Broker:
    closing = False

    def __init__(self, *topics: Topic):
        self.topics = {topic.name: topic for topic in topics}

    def get_channel(self, topic: Topic, name: bytes) -> None:
        topic.get_channel(name)


class Peer:
    """An nsqlookupd whose state fails, instead of its answer."""

    address = http_address = "127.0.0.1:1"

    def __init__(self, error: BaseException):
        self.error = error
        self.attempted = self

    async def wait(self) -> None:
        raise self.error


class Lookup:
    def __init__(self, *peers):
        self.peers = dict(enumerate(peers))


async def prepare(broker, lookup, topic):
    loop, log = asyncio.get_running_loop(), RecordingLog()
    broker.slicer = Slicer(loop)
    starter = ChannelLookup(loop, Dialer(loop), broker, Settings(Options()), lookup, log)
    starter.start(topic)
    return starter, log


@pytest.mark.parametrize("error", [Bug("x"), RecursionError("x"), OSError(errno.EMFILE, "x"), asyncio.CancelledError()])
def test_a_topic_starts_whatever_its_lookup_does(error):
    topic = Topic(b"t", {})

    async def play():
        _, log = await prepare(Broker(topic), Lookup(Peer(error)), topic)
        await until(lambda: topic.starts)
        return log

    log = asyncio.run(play())
    assert topic.starts == 1
    assert isinstance(error, asyncio.CancelledError) or any("for topic t" in line or "of topic t" in line for line in log.lines)


@pytest.mark.parametrize("error", [Bug("x"), OSError(errno.EMFILE, "Too many open files"), MemoryError()])
def test_a_topic_starts_though_its_channels_cannot_be_made(lookupd, error):
    server, topic = lookupd({"t": ["a", "b", "c"]}), Topic(b"t", {b"b": error})

    async def play():
        loop, log = asyncio.get_running_loop(), RecordingLog()
        peer = LookupPeer(server.address, loop, Dialer(loop), Settings(Options()), log, lambda: b"{}", lambda: iter(()))
        async with running(peer.run()):
            await until(lambda: peer.http_address)
            _, log = await prepare(Broker(topic), Lookup(peer), topic)
            await until(lambda: topic.starts)
        return log

    log = asyncio.run(play())
    assert topic.made == [b"a"] and topic.starts == 1
    assert any("failed to create channels of topic t" in line for line in log.lines)


def test_a_stop_starts_no_topic():
    topic = Topic(b"t", {})

    async def play():
        waits = Peer(Bug())
        waits.wait = asyncio.Event().wait
        starter, _ = await prepare(Broker(topic), Lookup(waits), topic)
        await asyncio.sleep(0)
        await starter.close()

    asyncio.run(play())
    assert topic.starts == 0


def test_reports_to_statsd_go_on(monkeypatch):
    log, pushes = RecordingLog(), []

    async def push(self, interval_s):
        pushes.append(interval_s)
        raise Bug("x")

    monkeypatch.setattr(Statsd, "_push", push)

    async def play():
        loop = asyncio.get_running_loop()
        options = Options().replace(statsd_address="127.0.0.1:1", statsd_interval=10**7)
        statsd = Statsd(loop, Dialer(loop), None, Settings(options), {}, None, log)
        async with running(statsd.run()) as task:
            await until(lambda: len(pushes) > 2)
            assert not task.done()

    asyncio.run(play())
    assert any("Bug('x')" in line for line in log.lines)


def test_a_resolver_that_fails_in_an_unknown_way_is_asked_again(monkeypatch):
    from nsqc.peers import http

    calls = []

    def endpoints(host, port, kind, flags=0):
        calls.append(flags)
        raise http.socket.gaierror if flags else Bug("x")

    monkeypatch.setattr(http, "_endpoints", endpoints)

    async def play():
        dialer = Dialer(asyncio.get_running_loop())
        for _ in range(2):
            async with asyncio.timeout(SECONDS):
                with pytest.raises(Bug):
                    await dialer.resolve("host.invalid:1", http.socket.SOCK_STREAM)

    asyncio.run(play())
    assert calls.count(0) == 2
