"""Ranges of a segment: where they end, what damage leaves, and their lines of JSON."""

import base64
import json
import os
import random
import struct
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqc.store.log import jsonlines, spans
from nsqc.store.log.format import TIME_UNIT, checksum
from tests.support.logs import BASE_NS, write_segment

BODIES = [b"%d" % number * 20 for number in range(10)]
FIRST = 1000
ALL = 2**62


@pytest.fixture
def segment(tmp_path):
    """Ten records from offset 1000 on."""
    return write_segment(tmp_path, FIRST, BODIES)


@contextmanager
def opened(segment):
    data = os.open(segment.path.with_suffix(".dat"), os.O_RDONLY)
    index = os.open(segment.path.with_suffix(".idx"), os.O_RDONLY)
    try:
        yield data, index
    finally:
        os.close(data)
        os.close(index)


def find(segment, offset=FIRST, max_messages=ALL, max_bytes=ALL, lines=False, triple=None):
    with opened(segment) as (data, index):
        return spans.sound(data, index, triple or segment.triple, offset, max_messages, max_bytes, lines)


def offsets(found):
    return found.first - FIRST, found.next - FIRST


def test_all_of_a_segment(segment):
    assert find(segment) == (FIRST, FIRST + 10, 0, segment.places[-1], 0, 0)


def test_bounds(segment):
    size = len(segment.records[0])
    assert offsets(find(segment, FIRST + 3, max_messages=2)) == (3, 5)
    assert offsets(find(segment, max_bytes=3 * size)) == (0, 3)
    assert offsets(find(segment, max_bytes=3 * size - 1)) == (0, 2)
    assert offsets(find(segment, max_bytes=1)) == (0, 1)     # one at least
    assert offsets(find(segment, FIRST + 9)) == (9, 10)
    # What is appended meanwhile does not belong to it.
    assert offsets(find(segment, triple=(FIRST, FIRST + 4, segment.places[4]))) == (0, 4)


@pytest.mark.parametrize("place", [0, 4, 20, 29, 31])
def test_damaged_records_are_left_out(segment, place):
    segment.damage(segment.places[3] + place)
    assert offsets(find(segment)) == (0, 3)
    found = find(segment, FIRST + 3)
    assert (*offsets(found), found.damaged) == (4, 10, 1)
    assert found.start == segment.places[4]
    for number in (4, 5):
        segment.damage(segment.places[number] + place)
    assert find(segment, FIRST + 3)[:5] == (FIRST + 6, FIRST + 10, segment.places[6], segment.places[10], 3)
    for number in range(6, 10):
        segment.damage(segment.places[number] + place)
    found = find(segment, FIRST + 3)
    assert (*offsets(found), found.damaged, found.end - found.start) == (10, 10, 7, 0)


def test_records_survive_the_loss_of_their_index_entries(segment):
    for lost in (0, 4, 5, 6, 9):
        segment.damage_entry(FIRST + lost)
    for offset in range(10):
        assert find(segment, FIRST + offset, max_messages=1)[:5] == (
            FIRST + offset, FIRST + offset + 1, segment.places[offset], segment.places[offset + 1], 0)
    # If a record is damaged, too, those around it count, and have their offsets, although no entry says where they are.
    segment.damage(segment.places[5])
    found = [find(segment, FIRST + offset) for offset in (2, 4, 5, 6)]
    assert [(*offsets(one), one.damaged) for one in found] == [(2, 4, 0), (4, 5, 0), (6, 10, 1), (6, 10, 0)]


def test_a_shorter_file_than_expected(segment):
    os.truncate(segment.path.with_suffix(".dat"), segment.places[6] + 10)
    assert offsets(find(segment)) == (0, 6)
    found = find(segment, FIRST + 6)
    assert (*offsets(found), found.damaged) == (10, 10, 4)
    os.truncate(segment.path.with_suffix(".idx"), 32)
    assert find(segment, FIRST + 9).first == FIRST + 10
    os.truncate(segment.path.with_suffix(".dat"), 0)
    found = find(segment)
    assert (*offsets(found), found.damaged) == (10, 10, 10)


def test_no_damage_makes_a_record_up(tmp_path):
    """Whatever bit is flipped, what is returned was published, in order, and at most one record is lost."""
    bodies = [b"a" * 3, b"", b"b" * 40]
    segment = write_segment(tmp_path, 5, bodies)
    for kind in ("dat", "idx"):
        for position in range(segment.path.with_suffix(f".{kind}").stat().st_size):
            segment.damage(position, kind)
            seen = []
            offset = 5
            content = segment.path.with_suffix(".dat").read_bytes()
            while offset < 8:
                found = find(segment, offset)
                assert found.next > offset
                at = found.start
                for number in range(found.first, found.next):
                    expected = segment.records[number - 5]
                    assert content[at:at + len(expected)] == expected, (kind, position)
                    at += len(expected)
                    seen.append(number)
                offset = found.next
            assert len(seen) >= 2 and seen == sorted(set(seen)), (kind, position)
            segment.damage(position, kind)


def test_large_records(tmp_path):
    bodies = [random.Random(1).randbytes(size) for size in (3_000_000, 10, 300_000, 262_144, 1_000_000)]
    segment = write_segment(tmp_path, 0, bodies)
    assert find(segment, 0)[:4] == (0, 5, 0, segment.places[-1])
    segment.damage(segment.places[0] + 2_900_000)
    assert find(segment, 0)[:5] == (1, 5, segment.places[1], segment.places[-1], 1)


def test_timestamps(segment):
    with opened(segment) as (data, index):
        stamps = [spans.timestamp(data, index, segment.triple, FIRST + number) for number in range(10)]
        assert stamps == [BASE_NS + number * 1_000_000 for number in range(10)]
        segment.damage(segment.places[9] + 40)
        assert spans.timestamp(data, index, segment.triple, FIRST + 9) is None
        segment.damage(segment.places[2] + 40)
        assert spans.timestamp(data, index, segment.triple, FIRST + 2) == BASE_NS + 3_000_000


@pytest.mark.parametrize("size", [1_000, 60_000, 70_000, 300_000, 1_048_576, 3_000_000])
def test_timestamps_of_large_records(tmp_path, size):
    """The record behind the one that is asked for is looked at, too, and may take its place in memory."""
    segment = write_segment(tmp_path, 0, [random.Random(1).randbytes(size)] * 5)
    with opened(segment) as (data, index):
        stamps = [spans.timestamp(data, index, segment.triple, number) for number in range(5)]
    assert stamps == [BASE_NS + number * 1_000_000 for number in range(5)]


def test_an_unreadable_descriptor(segment):
    with opened(segment) as (data, index):
        pass
    with pytest.raises(OSError, match="Bad file descriptor"):
        spans.sound(data, index, segment.triple, FIRST, 1, 1, False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        jsonlines.lines(data, FIRST, 0, 100, 1)


def all_lines(segment, most):
    found = find(segment, segment.first, lines=True)
    pieces = []
    offset, at = found.first, found.start
    with opened(segment) as (data, _):
        while at < found.end:
            piece, offset, at = jsonlines.lines(data, offset, at, found.end, most)
            pieces.append(piece)
    assert offset == found.next
    text = b"".join(pieces)
    assert len(text) == found.lines
    return text, len(pieces)


def test_lines(tmp_path):
    segment = write_segment(tmp_path, 7, [b"plain", b'quote" back\\slash\nline\ttab\x00\x1f\x7f', "ä€😀".encode(), b"\xff\xfe",
                                          b"", b"\xed\xa0\x80", b"\xc0\x80"])
    text, _ = all_lines(segment, 1)
    lines = [json.loads(line) for line in text.splitlines()]
    assert text.startswith(b'{"offset":7,"timestamp":1700000000000000000,"id":"0000000000000007","attempts":0,"body":"plain"}\n')
    assert [line["offset"] for line in lines] == list(range(7, 14))
    assert [line.get("body") for line in lines] == [
        "plain", 'quote" back\\slash\nline\ttab\x00\x1f\x7f', "ä€😀", None, "", None, None]
    assert [base64.b64decode(lines[number]["body_base64"]) for number in (3, 5, 6)] == [b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80"]


@given(st.lists(st.one_of(st.binary(max_size=40), st.text(max_size=40).map(str.encode)), min_size=1, max_size=20),
       st.integers(1, 3000))
def test_lines_give_back_any_body(tmp_path_factory, bodies, most):
    segment = write_segment(tmp_path_factory.mktemp("lines"), 2**62, bodies)
    text, pieces = all_lines(segment, most)
    assert 1 <= pieces <= len(bodies)
    back = []
    for line in map(json.loads, text.splitlines()):
        encoded = line.get("body_base64")
        back.append(line["body"].encode() if encoded is None else base64.b64decode(encoded))
        if encoded is not None:
            with pytest.raises(UnicodeDecodeError):
                back[-1].decode()
    assert back == bodies


def test_lines_of_a_file_that_has_changed(segment):
    with opened(segment) as (data, _), open(segment.path.with_suffix(".dat"), "r+b") as file:
        file.write(struct.pack(">i", 2**31 - 1))
        file.flush()
        with pytest.raises(OSError, match="Input/output error"):
            jsonlines.lines(data, FIRST, 0, segment.places[-1], 1)
        file.truncate(0)
        with pytest.raises(OSError, match="Input/output error"):
            jsonlines.lines(data, FIRST, 0, segment.places[-1], 1)


def test_by_time(tmp_path):
    segment = write_segment(tmp_path, FIRST, BODIES, step_ns=3_000_000)     # six records in a unit of the index

    def not_before(offset, time):
        with opened(segment) as (data, index):
            return spans.not_before(data, index, segment.triple, FIRST + offset, BASE_NS + time) - FIRST

    assert [not_before(0, time) for time in (0, 1, 3_000_000, 3_000_001, 27_000_000)] == [0, 1, 1, 2, 9]
    assert not_before(0, 27_000_001) == 10
    assert not_before(5, 0) == 5
    segment.damage(segment.places[4] + 8)
    assert not_before(0, 12_000_000) == 5
    segment.damage(20, "idx")    # the head: then only records have times
    assert [not_before(3, time) for time in (0, 15_000_000, 27_000_000, 27_000_001)] == [3, 5, 9, 10]


def test_by_time_where_the_clock_was_set_back(tmp_path):
    segment = write_segment(tmp_path, FIRST, BODIES, time_ns=BASE_NS + 60_000_000, step_ns=-6_000_000)
    index = segment.path.with_suffix(".idx")
    entries = bytearray(index.read_bytes())
    # As the log writes them: the latest time so far.
    for number in range(10):
        at = 32 + 16 * number
        entries[at + 4:at + 8] = struct.pack(">I", 60_000_000 // TIME_UNIT)
        entries[at + 12:at + 16] = struct.pack(">I", checksum(struct.pack(">q", FIRST + number) + entries[at:at + 12]))
    index.write_bytes(entries)
    with opened(segment) as (data, file):
        assert spans.not_before(data, file, segment.triple, FIRST + 1, BASE_NS + 40_000_000) == FIRST + 1
        assert spans.not_before(data, file, segment.triple, FIRST + 1, BASE_NS + 55_000_000) == FIRST + 10
