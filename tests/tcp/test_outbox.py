"""Output: replies and messages are sent whole and in order, however little a socket takes, and at the required
times."""

import socket
import struct

import pytest

from tests.support.daemon import Client, wait_until

# Bodies from 2048 bytes on are sent in place, smaller ones are copied; 128 KiB and up leave a slab.
SIZES = [1, 2047, 2048, 2049, 5000, 1, 1, 131_072, 3, 200_000, 2048, 2048, 7]


def slow(node) -> Client:
    """A client whose socket takes little at a time."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", node.tcp_port))
    sock.sendall(b"  V2")
    return Client(sock)


def body(number: int, size: int) -> bytes:
    return (b"%d." % number * (size // 2 + 1))[:size]


@pytest.mark.parametrize("rounds", [1, 30])
def test_copied_and_gathered_bodies_leave_in_order(daemon, rounds):
    """With 30 rounds there are more pieces than one system call sends."""
    node = daemon()
    bodies = [body(number, size) for number, size in enumerate(SIZES * rounds)]
    producer = node.connect()
    for data in bodies:
        producer.ok("PUB t", data)
    consumer = slow(node).sub("t", "c", 2500)
    assert [message.body for message in consumer.messages(len(bodies), finish=True)] == bodies


def test_replies_keep_their_place_between_messages(daemon):
    node = daemon()
    client = slow(node).sub("t", "c", 2500)
    count = 200
    client.send(b"".join(b"PUB t\n" + struct.pack(">i", 3000) + body(number, 3000) for number in range(count)))
    kinds, bodies = [], []
    while len(kinds) < 2 * count:
        kind, data = client.frame()
        kinds.append(kind)
        if kind == 2:
            bodies.append(data[26:])
        else:
            assert data == b"OK"
    assert bodies == [body(number, 3000) for number in range(count)]
    assert kinds.count(0) == count


def test_a_blocked_client_gets_no_more_messages_until_it_reads(daemon):
    node = daemon()
    client = slow(node).sub("t", "c", 2500)
    producer = node.connect()
    for _ in range(20):
        producer.pub("t", *[b"x" * 20_000] * 50)
    wait_until(lambda: node.channel("t", "c")["depth"] > 0)
    held = node.channel("t", "c")
    assert held["depth"] + held["in_flight_count"] == 1000
    assert len(client.messages(1000, finish=True)) == 1000
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)


def test_a_reply_that_waits_for_the_disk_holds_back_what_is_behind_it(daemon):
    """OK for a PUB to disk comes first, then the reply that was ready before."""
    node = daemon("--mem-queue-size=0")
    client = node.connect()
    for number in range(50):
        client.send(b"PUB t\n\x00\x00\x00\x01x" + (b"SUB t c\n" if number == 0 else b"FIN 0123456789abcdef\n"))
    assert [client.frame() for _ in range(2)] == [(0, b"OK"), (0, b"OK")]
    for _ in range(49):
        assert client.frame() == (0, b"OK")
        assert client.frame()[1].startswith(b"E_FIN_FAILED")


def test_flushing_as_nsqd_does_keeps_messages_until_a_reply(daemon):
    node = daemon("--output-buffer-flush=timeout", "--output-buffer-timeout=25s")
    consumer = node.connect().sub("t", "c", 10)
    node.connect().ok("PUB t", b"waits")
    assert consumer.quiet(0.3)
    consumer.send(b"PUB other\n\x00\x00\x00\x01x")
    assert [consumer.frame()[0] for _ in range(2)] == [2, 0], "the reply takes the message along"
