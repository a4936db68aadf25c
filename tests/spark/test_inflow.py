"""Frames from nsqd: cut anywhere, they give the same columns."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqc.spark.inflow import BadStream, Inflow, finish, requeue
from nsqc.spark.stager import to_arrow

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
def test_split_anywhere(messages, cuts):
    stream = b"".join(message(body, time * 1000, attempts, number)
                      + (frame(0, b"_heartbeat_") if number % 3 == 0 else b"")
                      for number, (body, time, attempts) in enumerate(messages))
    inflow, at = Inflow(1000), 0
    for cut in [*sorted(min(cut, len(stream)) for cut in cuts), len(stream)]:
        feed(inflow, stream[at:cut])
        at = cut
    assert inflow.replies == [(0, b"_heartbeat_")] * -(-len(messages) // 3)
    if messages:
        assert inflow.oldest == min(time for _, time, _ in messages) * 1000
    rows = to_arrow(inflow.columns())
    assert rows.column(0).to_pylist() == [body for body, _, _ in messages]
    assert rows.column(1).to_pylist() == [f"{number:016x}" for number in range(len(messages))]
    assert rows.column(2).cast("int64").to_pylist() == [time for _, time, _ in messages]
    assert rows.column(3).to_pylist() == [attempts for _, _, attempts in messages]
    assert inflow.rows == 0 and to_arrow(inflow.columns()).num_rows == 0


def test_a_message_larger_than_the_area():
    inflow, body = Inflow(2_000_000), bytes(range(256)) * 6000
    feed(inflow, message(b"small", 1, 1, 1) + message(body, 2, 1, 2) + message(b"after", 3, 1, 3))
    assert to_arrow(inflow.columns()).column(0).to_pylist() == [b"small", body, b"after"]


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request", struct.pack(">ii", 3, 0), struct.pack(">ii", -1, 0),
                                  frame(2, b"x" * 25), struct.pack(">ii", 1001, 0)])
def test_what_is_no_frame_is_refused(data):
    with pytest.raises(BadStream):
        feed(Inflow(1000), data)


def test_commands_for_many():
    ids = b"0123456789abcdef" + b"fedcba9876543210"
    assert finish(ids) == b"FIN 0123456789abcdef\nFIN fedcba9876543210\n"
    assert requeue(ids) == b"REQ 0123456789abcdef 0\nREQ fedcba9876543210 0\n"
    assert finish(b"") == b""
