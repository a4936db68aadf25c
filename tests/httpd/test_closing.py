"""Connections that end while their client reads nothing."""

import pytest

from tests.support.daemon import wait_until


@pytest.fixture(scope="module")
def talkative(server):
    """A server whose statistics exceed the kernel's socket buffers."""
    clients = server.talk(16)
    yield server
    for client in clients:
        client.close()


def sockets(server) -> int:
    return sum(place.startswith("socket:") for place in server.descriptors())


def test_a_client_that_takes_nothing_is_given_up(talkative):
    """Slow: the daemon drops a client after 5 s."""
    before = sockets(talkative)
    with talkative.wire(receive_buffer=4096) as wire:
        wait_until(lambda: sockets(talkative) == before + 1)
        wire.send(b"GET /stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        wait_until(lambda: sockets(talkative) == before, "the end")


def test_a_client_that_reads_slowly_gets_all(talkative):
    with talkative.wire(receive_buffer=65536) as wire:
        wire.send(b"GET /stats?format=json HTTP/1.0\r\n\r\n")
        reply = wire.reply()
        assert len(reply.body) > 16 << 20
        assert len(reply.json["topics"][0]["channels"][0]["clients"]) == 2048
