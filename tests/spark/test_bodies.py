"""Arrow columns to MPUB and DPUB, against a plain reading of the same bytes."""

import array
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqc.spark.arrow import Bodies


def bodies(column: pa.Array) -> Bodies:
    validity, offsets, data = column.buffers()
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    return Bodies(validity, offsets, data, column.offset, len(column), wide)


def read_mpub(command: bytes) -> tuple[bytes, list[bytes]]:
    line, rest = command.split(b"\n", 1)
    size, count = struct.unpack_from(">ii", rest)
    assert size == len(rest) - 4
    found, at = [], 8
    for _ in range(count):
        length = struct.unpack_from(">i", rest, at)[0]
        found.append(rest[at + 4:at + 4 + length])
        at += 4 + length
    assert at == len(rest)
    return line, found


def frames(column: Bodies, max_rows: int, max_bytes: int) -> list[list[bytes]]:
    found, at = [], 0
    while at < column.rows:
        command, end = column.mpub(b"t", at, max_rows, max_bytes)
        line, messages = read_mpub(command)
        assert line == b"MPUB t" and len(messages) == end - at <= max_rows
        assert len(messages) == 1 or len(command) - len(b"MPUB t\n") - 4 <= max_bytes
        found.append(messages)
        at = end
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=60), st.data(),
       st.sampled_from([pa.binary(), pa.large_binary()]))
def test_every_slice_is_framed_as_it_reads(values, data, kind):
    column = pa.array(values, kind)
    begin = data.draw(st.integers(0, len(values) - 1))
    length = data.draw(st.integers(1, len(values) - begin))
    max_rows, max_bytes = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 200))
    found = frames(bodies(column.slice(begin, length)), max_rows, max_bytes)
    assert [body for frame in found for body in frame] == values[begin:begin + length]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_text_goes_as_utf8(kind):
    assert frames(bodies(pa.array(["aé", "漢"], kind)), 10, 1000) == [["aé".encode(), "漢".encode()]]


def test_a_frame_is_as_large_as_allowed_and_not_larger():
    column = bodies(pa.array([b"x" * 10] * 10))
    assert [len(frame) for frame in frames(column, 100, 4 + 3 * 14)] == [3, 3, 3, 1]
    assert [len(frame) for frame in frames(column, 100, 4 + 3 * 14 - 1)] == [2, 2, 2, 2, 2]


@pytest.mark.parametrize(("values", "bad"), [
    ([b"a", None, b"c"], (1, "null", 0)),
    ([b"a", b"", b"c"], (1, "empty", 0)),
    ([b"abcd", b"abcde"], (1, "too big", 5)),
    ([b"abcd", b"a"], None),
])
@pytest.mark.parametrize("shift", [0, 1, 9])
def test_bad_rows_are_found_in_slices_too(values, bad, shift):
    column = bodies(pa.array([b"pad", *[None] * shift, *values])[1 + shift:])
    assert column.find_bad(0, 4) == bad
    if bad:
        assert column.find_bad(bad[0] + 1, 4) is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.integers(0, 2**31 - 1)), min_size=1, max_size=30),
       st.integers(1, 7))
def test_deferred_rows_carry_their_delay(rows, max_rows):
    column = bodies(pa.array([body for body, _ in rows]))
    delays = array.array("i", [delay for _, delay in rows])
    at, found = 0, b""
    while at < len(rows):
        commands, end = column.dpub(b"t", delays, at, max_rows, 500)
        assert at < end <= at + max_rows
        found, at = found + commands, end
    assert found == b"".join(b"DPUB t %d\n" % delay + struct.pack(">i", len(body)) + body for body, delay in rows)


def test_buffers_that_lie_are_refused():
    ints = array.array("i", [0, 5, 3])
    with pytest.raises(ValueError, match="decrease at row 1"):
        Bodies(None, ints, b"abcde", 0, 2, False)
    with pytest.raises(ValueError, match="exceed the 4 bytes"):
        Bodies(None, array.array("i", [0, 5]), b"abcd", 0, 1, False)
    with pytest.raises(ValueError, match="too few"):
        Bodies(None, array.array("i", [0, 5]), b"abcde", 1, 1, False)
    with pytest.raises(ValueError, match="validity"):
        Bodies(b"\xff", array.array("i", range(11)), b"x" * 10, 0, 10, False)
    with pytest.raises(IndexError):
        Bodies(None, array.array("i", [0, 1]), b"x", 0, 1, False).mpub(b"t", 1, 10, 10)
