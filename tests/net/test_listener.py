"""Listeners: bound or inherited, paused together, removed with their files."""

import asyncio
import contextlib
import os
import socket

import pytest
import uvloop

from nsqc.log import Log
from nsqc.net.address import bind
from nsqc.net.listener import Acceptor, ConnectionLimits, Listener, Listeners
from tests.support.echo import Echo
from tests.support.patience import WAIT_SECONDS


@pytest.fixture
def log_lines():
    """log, lines(): a log and its lines so far."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    log = Log(descriptor=write)
    text = bytearray()

    def lines() -> list[str]:
        log.close()
        with contextlib.suppress(BlockingIOError):
            text.extend(os.read(read, 1 << 16))
        return text.decode().splitlines()

    yield log, lines
    log.close()
    os.close(read)
    os.close(write)


@pytest.fixture
def log(log_lines):
    return log_lines[0]


def endpoint(listener: Listener):
    return listener.address if listener.port < 0 else ("127.0.0.1", listener.port)


def connect(listener: Listener) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX if listener.port < 0 else socket.AF_INET)
    sock.settimeout(WAIT_SECONDS)
    sock.connect(endpoint(listener))
    return sock


def echo(sock: socket.socket) -> bytes:
    sock.sendall(b"x")
    return sock.recv(1)


async def started(listener: Listener, log: Log) -> Listeners:
    loop = asyncio.get_running_loop()
    listeners = Listeners(loop, log)
    await listener.start(Acceptor(loop, listener.sock, Echo, log), listeners)
    return listeners


@pytest.mark.parametrize("unix", [False, True])
def test_from_start_to_close(tmp_path, log_lines, unix):
    log, lines = log_lines

    async def scenario():
        listener = Listener("TCP", str(tmp_path / "sock") if unix else "127.0.0.1:0", log)
        await started(listener, log)
        with connect(listener) as sock:
            assert await asyncio.to_thread(echo, sock) == b"x"
            listener.close()
            # Existing connections stay.
            assert await asyncio.to_thread(echo, sock) == b"x"
        with pytest.raises(FileNotFoundError if unix else ConnectionRefusedError):
            connect(listener)
        assert [line.rpartition("INFO: ")[2] for line in lines()] == [
            f"TCP: listening on {listener.address}", f"TCP: closing {listener.address}"]

    uvloop.run(scenario())
    assert not (tmp_path / "sock").exists()


def test_an_address_in_use_is_noticed_at_once(log):
    first = Listener("TCP", "127.0.0.1:0", log)
    first.sock.listen()
    with pytest.raises(OSError, match="in use"):
        Listener("HTTP", first.address, log)
    first.close()


def test_the_file_of_an_inherited_socket_stays(tmp_path, log):
    async def scenario():
        path = str(tmp_path / "sock")
        inherited = bind(path)
        inherited.listen()
        listener = Listener("HTTP", "ignored", log, inherited)
        assert listener.address == path
        await started(listener, log)
        listener.close()

    uvloop.run(scenario())
    assert (tmp_path / "sock").exists()


def test_closed_before_its_start(tmp_path, log):
    listener = Listener("TCP", str(tmp_path / "sock"), log)
    listener.close()
    assert listener.sock.fileno() == -1
    assert not (tmp_path / "sock").exists()


def test_paused_listeners_keep_clients_waiting(log_lines):
    log, lines = log_lines

    async def scenario():
        loop = asyncio.get_running_loop()
        listeners = Listeners(loop, log)
        all_listeners = [Listener("TCP", "127.0.0.1:0", log) for _ in range(2)]
        listeners.pause(7)
        for listener in all_listeners:
            await listener.start(Acceptor(loop, listener.sock, Echo, log), listeners)
        clients = [connect(listener) for listener in all_listeners]
        answers = [asyncio.ensure_future(asyncio.to_thread(echo, client)) for client in clients]
        done, _ = await asyncio.wait(answers, timeout=0.1)
        assert not done
        listeners.resume()
        # Paused and resumed again before the first resume took effect: still one server each.
        listeners.pause(7)
        listeners.resume()
        assert await asyncio.gather(*answers) == [b"x", b"x"]
        for client in clients:
            client.close()
        for listener in all_listeners:
            listener.close()
        listeners.stop()
        assert sum("accepting stops at 7 connections" in line for line in lines()) == 1

    uvloop.run(scenario())


def test_limits_pause_and_resume(log):
    async def scenario():
        listener = Listener("TCP", "127.0.0.1:0", log)
        listeners = await started(listener, log)
        limits = ConnectionLimits(log)
        limits.keep_within(2, listeners)
        assert limits.enter("a") and not listeners.paused
        assert limits.enter("b") and listeners.paused
        limits.leave("a")
        assert not listeners.paused
        limits.keep_within(1, listeners)
        assert listeners.paused
        limits.keep_within(5, listeners)
        assert not listeners.paused
        assert (limits.connections, limits.hosts) == (1, {"b": 1})
        listener.close()
        listeners.stop()

    uvloop.run(scenario())


@pytest.mark.parametrize("limits,clients,counted", [
    ({"connections": 2}, ["a", "b", "c"], 2),
    ({"per_address": 1}, ["a", "a", "b", "", ""], 4),
    ({}, ["a"] * 9, 9),
])
def test_limits_refuse(log_lines, limits, clients, counted):
    log, lines = log_lines
    counter = ConnectionLimits(log, **limits)
    admitted = [client for client in clients if counter.enter(client)]
    assert len(admitted) == counter.connections == counted
    assert sum("refused: " in line for line in lines()) == (counted < len(clients))
    for client in admitted:
        counter.leave(client)
    assert (counter.connections, counter.hosts) == (0, {})
