"""Long answers sent by worker threads: every byte once, however little the socket takes."""

import os
import socket
import threading

import pytest

from nsqc.httpd.reply import HeldPage

PARTS = [b"a", b"", os.urandom(3_000_000), b"b" * 17, *(os.urandom(size) for size in range(200)), os.urandom(70_000)]


def sent(held: HeldPage, sock: socket.socket | None) -> bytes:
    """Records the data of the transport, and with a socket sends it there as the transport would."""
    rest = b""
    for _ in range(100_000):
        if not held.left:
            return rest
        data = held.send(-1 if sock is None else sock.fileno())
        if sock is None:
            rest += data
        elif data:
            sock.setblocking(True)
            sock.sendall(data)
            sock.setblocking(False)
    raise AssertionError("it does not end")


@pytest.mark.parametrize("room", [4096, 300_000])
def test_a_socket_gets_every_byte_once(room):
    ours, theirs = socket.socketpair()
    received = bytearray()

    def read():
        while data := theirs.recv(50_000):
            received.extend(data)

    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        ours.setblocking(False)
        reader = threading.Thread(target=read)
        reader.start()
        held = HeldPage(PARTS, None)
        assert held.length == sum(map(len, PARTS))
        sent(held, ours)
        ours.close()
        reader.join()
    assert bytes(received) == b"".join(PARTS)


def test_a_transport_under_tls_gets_it_in_pieces():
    assert sent(HeldPage(PARTS, None), None) == b"".join(PARTS)


def test_a_client_that_has_left_is_left_to_the_transport():
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        held = HeldPage(PARTS, 5.0)
        assert held.send(ours.fileno()) == b"".join(PARTS)[:1], "the first part, which the transport fails to send"


def test_what_it_holds_are_whole_parts():
    held = HeldPage([b"x" * 3_000_000, b"y" * 100_000], None)
    sizes = []
    while held.left:
        sizes.append(held.in_memory)
        held.send(-1)
    assert set(sizes) == {3_100_000, 100_000}
    assert held.in_memory == 0
