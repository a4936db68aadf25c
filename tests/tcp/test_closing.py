"""Connections that end: answers still arrive, and a client that reads nothing is dropped."""

import contextlib
import socket
import sys

import pytest

from tests.support.daemon import Client, wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import connect

GIVEN_UP = "accepts no data while it is closed"
PUB = b"PUB t\n\x00\x00\x00\x01x"
# More answers than the buffers of the kernel hold, at 10 bytes each.
MANY = 700_000


def small(node) -> socket.socket:
    """A connection whose own buffer holds next to nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(WAIT_SECONDS)
    sock.connect(("127.0.0.1", node.tcp_port))
    return sock


@pytest.fixture
def unread(daemon):
    """A daemon and a client that has requested more than it has read."""
    node = daemon("--max-buffered-bytes=100000000", "--mem-queue-size=1000000")
    with contextlib.closing(small(node)) as sock:
        sock.sendall(b"  V2" + PUB * MANY)
        yield node, sock


def test_a_client_that_takes_nothing_is_given_up(unread):
    """Slow: the daemon drops a client after 5 s."""
    node, sock = unread
    sock.sendall(b"NONE\n")
    wait_until(lambda: "invalid command NONE" in node.log)
    wait_until(lambda: GIVEN_UP in node.log and "connection closed" in node.log, "the end")


def test_a_client_that_is_slow_to_read_gets_every_answer(unread):
    node, sock = unread
    sock.shutdown(socket.SHUT_WR)
    wait_until(lambda: node.stats("t")["message_count"] == MANY)
    data = bytearray()
    while more := sock.recv(1 << 20):
        data += more
    assert data == b"\x00\x00\x00\x06\x00\x00\x00\x00OK" * MANY
    assert GIVEN_UP not in node.log


# Any other limit on a stop is an hour.
PATIENT = """
import nsqc.tcp.identify, nsqc.tcp.intake
nsqc.tcp.identify.LINGER_S = nsqc.tcp.identify.LINGER_MOST_S = nsqc.tcp.intake.SHUTDOWN_S = 3600
from nsqc.cli import main
main()
"""


def test_a_stop_does_not_wait_for_a_silent_client_under_tls(secure):
    """It has read everything, and only fails to confirm the end of TLS."""
    node = secure(command=(sys.executable, "-c", PATIENT, "serve"))
    silent = connect(node, "tls").sub("t", "c", 10)
    assert node.stop() == 0
    silent.close()


def test_a_stop_still_sends_what_is_due(daemon):
    node = daemon("--max-buffered-bytes=100000000", "--mem-queue-size=1000000",
                  command=(sys.executable, "-c", PATIENT, "serve"))
    with contextlib.closing(small(node)) as sock:
        client = Client(sock)
        sock.sendall(b"  V2" + PUB * 400_000)
        wait_until(lambda: node.stats("t")["message_count"] == 400_000)
        node.process.terminate()
        count = 0
        while client.frame() == (0, b"OK"):
            count += 1
        assert count == 400_000
    assert node.process.wait(WAIT_SECONDS) == 0
