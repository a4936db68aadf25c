"""Connections that end while their client reads nothing."""


import pytest

from tests.support.daemon import talkers, wait_until

MIB = 1024 * 1024


@pytest.fixture
def talkative(start):
    """A server whose statistics exceed the kernel's socket buffers."""
    server = start()
    clients = talkers(server, 2000)
    yield server
    for client in clients:
        client.close()


def sockets(server) -> int:
    return sum(place.startswith("socket:") for place in server.descriptors())


@pytest.mark.parametrize("request_line", [b"GET /stats?format=json HTTP/1.0\r\n\r\n",
                                          b"GET /stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"])
def test_a_client_that_takes_nothing_is_given_up(talkative, request_line):
    """Slow: the daemon drops a client after 5 s."""
    before = sockets(talkative)
    with talkative.wire(receive_buffer=4096) as wire:
        wait_until(lambda: sockets(talkative) == before + 1)
        wire.send(request_line)
        wait_until(lambda: sockets(talkative) == before, "the end")


def test_a_client_that_reads_slowly_gets_all(talkative):
    with talkative.wire(receive_buffer=65536) as wire:
        wire.send(b"GET /stats?format=json HTTP/1.0\r\n\r\n")
        assert len(wire.reply().json["topics"][0]["channels"][0]["clients"]) == 2000
