"""Clients with short reads are found while they wait to be read, and only while their socket is being read."""

from __future__ import annotations

import socket

import pytest

from nsqc.loop.uv import Unread

MS = 1_000_000
LITTLE, MUCH = 10_000, MS       # of a read


@pytest.fixture
def pair():
    pairs = []

    def make() -> tuple[socket.socket, socket.socket]:
        pairs.append(socket.socketpair())
        return pairs[-1]

    yield make
    for ends in pairs:
        for end in ends:
            end.close()


def test_found_until_it_is_read(pair):
    unread, (client, ours) = Unread(), pair()
    unread.add(ours.fileno())
    assert not unread.waits(1)
    client.send(b"PUB")
    assert unread.waits(2) and unread.waits(3)
    ours.recv(100)
    unread.note(ours.fileno(), LITTLE)
    assert unread.waits(4), "its answer has not left"
    unread.answered()
    assert not unread.waits(5)


def test_who_asks_for_much_is_not_looked_for(pair):
    unread, (client, ours) = Unread(), pair()
    unread.add(ours.fileno())
    unread.note(ours.fileno(), MUCH)
    client.send(b"FIN")
    assert not unread.waits(1)
    unread.note(ours.fileno(), LITTLE)          # less from now on
    unread.answered()
    assert unread.waits(2)


def test_a_socket_that_nobody_reads_stops_nothing(pair):
    unread, (client, ours), (other, others) = Unread(), pair(), pair()
    unread.add(ours.fileno())
    unread.add(others.fileno())
    client.send(b"PUB")
    assert [unread.waits(ms * MS) for ms in range(1, 60, 5)] == [True] * 11 + [False]
    other.send(b"PUB")
    assert unread.waits(60 * MS)
    others.recv(100)
    assert not unread.waits(61 * MS)
    unread.note(ours.fileno(), LITTLE)          # it is read again
    unread.answered()
    assert unread.waits(62 * MS)


def test_seen_now_and_then_is_not_stuck(pair):
    unread, (client, ours) = Unread(), pair()
    unread.add(ours.fileno())
    client.send(b"GET")
    assert all(unread.waits(ms * MS) for ms in range(1, 1000, 20))


def test_a_closed_socket_makes_room_for_the_next(pair):
    unread, (_client, ours) = Unread(), pair()
    number = ours.fileno()
    unread.add(number)
    unread.note(number, MUCH)
    ours.close()
    one, other = socket.socketpair()
    with one, other:
        same = one if one.fileno() == number else other
        assert same.fileno() == number, "the kernel gives out the lowest number"
        unread.add(number)
        (other if same is one else one).send(b"x")
        assert unread.waits(1)


def test_a_duplicate_that_outlives_a_client_stops_nothing(pair):
    """The set forgets a descriptor only when the last duplicate of its socket is closed."""
    unread, (client, ours) = Unread(), pair()
    unread.add(ours.fileno())
    client.send(b"GET")
    with ours.dup():
        ours.close()
        assert [unread.waits(ms * MS) for ms in range(1, 90, 5)] == [True] * 11 + [False] * 7
        assert not any(unread.waits(ms * MS) for ms in range(100, 1000, 5))


def test_descriptors_that_cannot_be_watched(tmp_path):
    unread = Unread()
    with open(tmp_path / "file", "wb") as file:
        unread.add(file.fileno())
        unread.add(-1)
        unread.note(file.fileno(), LITTLE)
        unread.note(10_000, MUCH)
        unread.answered()
        assert not unread.waits(1)
