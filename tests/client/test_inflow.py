"""Frames from nsqd, cut anywhere, give the same columns."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqc.client.frames import BadStream, Inflow, finish, messages, requeue
from tests.support.sizes import SIZES

MESSAGES = st.lists(st.tuples(st.binary(max_size=60), st.integers(1, 2**50), st.integers(0, 65535)), max_size=30)


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(data), kind) + data


def message(body: bytes, time: int, attempts: int, number: int) -> bytes:
    return frame(2, struct.pack(">qH16s", time, attempts, b"%016x" % number) + body)


def feed(inflow: Inflow, data: bytes) -> None:
    while data:
        view = memoryview(inflow)
        taken = min(len(view), len(data))
        view[:taken] = data[:taken]
        view.release()
        inflow.fed(taken)
        data = data[taken:]


@settings(max_examples=150, deadline=None)
@given(MESSAGES, st.lists(st.integers(0, 3000), max_size=8))
def test_split_anywhere(found, cuts):
    stream = b"".join(message(body, time * 1000, attempts, number)
                      + (frame(0, b"_heartbeat_") if number % 3 == 0 else b"")
                      for number, (body, time, attempts) in enumerate(found))
    inflow, at = Inflow(1000, tick_ns=1000), 0
    for cut in [*sorted(min(cut, len(stream)) for cut in cuts), len(stream)]:
        feed(inflow, stream[at:cut])
        at = cut
    assert inflow.replies == [(0, b"_heartbeat_")] * -(-len(found) // 3)
    if found:
        assert inflow.oldest == min(time for _, time, _ in found) * 1000
    rows = messages(inflow.columns(), None)
    assert [row.body for row in rows] == [body for body, _, _ in found]
    assert [row.id for row in rows] == [b"%016x" % number for number in range(len(found))]
    assert [row.timestamp_ns for row in rows] == [time for _, time, _ in found]
    assert [row.attempts for row in rows] == [attempts for _, _, attempts in found]
    assert inflow.rows == 0 and messages(inflow.columns(), None) == []


def test_a_message_larger_than_the_area():
    inflow, body = Inflow(2_000_000), bytes(range(256)) * 6000
    feed(inflow, message(b"small", 1, 1, 1) + message(body, 2, 1, 2) + message(b"after", 3, 1, 3))
    assert [row.body for row in messages(inflow.columns(), None)] == [b"small", body, b"after"]


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request", struct.pack(">ii", 3, 0), struct.pack(">ii", -1, 0),
                                  frame(2, b"x" * 25), struct.pack(">ii", 1001, 0)])
def test_what_is_no_frame_is_refused(data):
    with pytest.raises(BadStream):
        feed(Inflow(1000), data)


@pytest.mark.parametrize("size", [*SIZES, 1001])
@pytest.mark.parametrize("came", range(4, 9))
def test_a_size_is_looked_at_before_anything_is_made_of_it(size, came):
    """A partial frame allocates nothing, and reading it does not wait for the rest."""
    for before in (b"", message(b"x", 1, 1, 1), frame(0, b"OK") * 3):
        inflow = Inflow(1000)
        room = len(memoryview(inflow))
        with pytest.raises(BadStream, match=f"a frame of {size} bytes, 1000 are allowed"):
            feed(inflow, before + struct.pack(">ii", size, 2)[:came])
        assert len(memoryview(inflow)) <= room


def test_the_largest_size_that_fits_into_its_field():
    """Up to the 32-bit limit, where allowed: the whole frame fits, or it is an error."""
    inflow = Inflow(1 << 31)
    try:
        feed(inflow, struct.pack(">i", (1 << 31) - 1))
    except MemoryError:
        return
    assert len(memoryview(inflow)) == (1 << 31) - 1


def test_commands_for_many():
    ids = b"0123456789abcdef" + b"fedcba9876543210"
    assert finish(ids) == b"FIN 0123456789abcdef\nFIN fedcba9876543210\n"
    assert requeue(ids) == b"REQ 0123456789abcdef 0\nREQ fedcba9876543210 0\n"
    assert finish(b"") == b""
