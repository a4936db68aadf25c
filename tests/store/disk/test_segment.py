"""Records of a data file: their layout, how they are found, and told from damage."""

import errno
import itertools
import os
import random
import struct

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from nsqc.store.disk import fileio
from nsqc.store.disk.segment import RECORD_HEAD_BYTES, RECORD_ID_OFFSET, RECORD_SIZE_BYTES, count
from tests.compiled import diskqueue

STAMP = 1_700_000_000_000_000_000
MAX_RECORD = 10_030


def message_id(number: int) -> bytes:
    return b"%016x" % number


def record(number: int, body: bytes = b"body", digits: bytes | None = None) -> bytes:
    """As docs/ondisk.md describes it."""
    head = struct.pack(">iqH", 26 + len(body), STAMP + number, number)
    return head + (digits or message_id(number)) + body


@pytest.fixture
def write(tmp_path):
    """Writes a data file; returns its path."""
    def file(*parts: bytes) -> str:
        path = tmp_path / "data"
        path.write_bytes(b"".join(parts))
        return str(path)
    return file


@given(st.binary(max_size=400), st.integers(0, 65535), st.integers(-(2**63), 2**63 - 1))
def test_layout(body, attempts, timestamp):
    stored = diskqueue.store(body, message_id(5), timestamp, attempts)
    assert stored == struct.pack(">iqH", 26 + len(body), timestamp, attempts) + message_id(5) + body
    assert diskqueue.load(stored) == (body, message_id(5), timestamp, attempts)


def test_offsets_for_python():
    stored = record(3, b"")
    assert len(stored) == RECORD_HEAD_BYTES
    assert stored[RECORD_ID_OFFSET:] == message_id(3)
    assert int.from_bytes(stored[:RECORD_SIZE_BYTES], "big") == len(stored) - RECORD_SIZE_BYTES


@pytest.mark.parametrize("change, plausible", [
    ({}, True),
    ({"size": 26}, True),
    ({"size": 25}, False),
    ({"size": MAX_RECORD - 4}, True),
    ({"size": MAX_RECORD - 3}, False),
    ({"size": -1}, False),
    ({"stamp": 0}, False),
    ({"stamp": 1}, True),
    ({"stamp": 0x2fff_ffff_ffff_ffff}, True),
    ({"stamp": 0x3000_0000_0000_0000}, False),
    ({"digits": b"0123456789abcdeF"}, False),
    ({"digits": b"012345678\n abcde"}, False),
    ({"digits": b"0123456\xb789abcdef"[:16]}, False),
    ({"digits": b"g123456789abcdef"}, False),
    ({"digits": b"/123456789abcdef"}, False),
    ({"digits": b"0123456789abcde:"}, False),
    ({"digits": b"0123456789abcde`"}, False),
])
def test_plausible_heads(change, plausible):
    head = {"size": 30, "stamp": STAMP, "digits": b"0123456789abcdef"} | change
    packed = struct.pack(">iqH", head["size"], head["stamp"], 1) + head["digits"]
    assert diskqueue.is_plausible(packed, MAX_RECORD) == plausible


@pytest.mark.parametrize("bad", [b"0123456789abcde\n", b"0123 56789abcdef", b"0123456789abcde\x7f"])
def test_ids_that_no_command_could_carry_are_damage(write, bad):
    path = write(record(0), record(1, digits=bad), record(2))
    size = len(record(0))
    assert diskqueue.walk(path, MAX_RECORD) == [(0, size), (2 * size, size)]
    assert count(path, 0, MAX_RECORD) == (2, 3 * size, size, 3 * size)


def test_ids_of_other_writers_are_read(write):
    path = write(record(0, digits=b"Z" * 16), record(1, digits=b"~!@#$%^&*()_+={}"))
    assert len(diskqueue.walk(path, MAX_RECORD)) == 2


def noise(dice: random.Random, size: int) -> bytes:
    """Bytes that cannot begin a head."""
    return bytes(dice.choices(range(1, 256), k=size))


def check(folder, parts: list[tuple[bool, bytes]]) -> None:
    """parts: whether it is an intact record, and its bytes; all records are found, and everything else is damage."""
    path, intact, at = folder / f"intact-{os.getpid()}", [], 0
    for is_record, data in parts:
        if is_record:
            intact.append((at, len(data)))
        at += len(data)
    path.write_bytes(b"".join(data for _, data in parts))
    assert diskqueue.walk(str(path), MAX_RECORD) == intact
    end = sum(intact[-1])
    assert count(str(path), 0, MAX_RECORD) == (len(intact), end, end - sum(length for _, length in intact), at)


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 100)), min_size=1, max_size=12), st.integers(0, 2**32))
def test_records_between_garbage_are_found(tmp_path_factory, sizes, seed):
    dice, parts = random.Random(seed), []
    for number, (size, garbage) in enumerate(sizes):
        parts += [(False, noise(dice, garbage)), (True, record(number, noise(dice, size)))]
    check(tmp_path_factory.getbasetemp(), parts)


@example(200, [299, 0], 0)
@given(st.integers(1, 529), st.lists(st.integers(0, 300), min_size=2, max_size=8), st.integers(0, 2**32))
def test_records_behind_half_a_record_are_found(tmp_path_factory, cut, sizes, seed):
    """Unless another record begins exactly where the truncated one would have ended."""
    ends = itertools.accumulate((RECORD_HEAD_BYTES + size for size in sizes), initial=cut)
    assume(RECORD_HEAD_BYTES + 500 not in ends)
    dice = random.Random(seed)
    parts = [(True, record(0, noise(dice, 100))), (False, record(1, noise(dice, 500))[:cut])]
    parts += [(True, record(number, noise(dice, size))) for number, size in enumerate(sizes, 2)]
    check(tmp_path_factory.getbasetemp(), parts)


def test_a_size_that_swallows_the_next_record_is_damage(write):
    long = bytearray(record(0, b"x" * 50))
    long[:4] = struct.pack(">i", 26 + 50 + 20)
    path = write(bytes(long), record(1), record(2))
    assert diskqueue.walk(path, MAX_RECORD) == [(80, 34), (114, 34)]


def with_digits() -> tuple[list[bytes], list[tuple[int, int]]]:
    """Records whose bodies begin with digits, so that a head one byte after a real one also looks valid; and their
    places. The misread size, made of the record's size and the first byte of its time, leads the first one of these to
    a later head."""
    stamp = 0x1712 << 48
    lengths = [40] * 300
    size = (lengths[0] - RECORD_SIZE_BYTES) << 8 | stamp >> 56
    end = 1 + RECORD_SIZE_BYTES + size
    lengths[end // 40 - 1] += end % 40
    records = [struct.pack(">iqH", length - RECORD_SIZE_BYTES, stamp + number * 1_234_567_891_011, 1) + message_id(number)
               + b"%0*d" % (length - RECORD_HEAD_BYTES, number) for number, length in enumerate(lengths)]
    assert end in itertools.accumulate(lengths) and end < MAX_RECORD
    return records, list(zip(itertools.accumulate([0, *lengths[:-1]]), lengths, strict=True))


@pytest.mark.parametrize("damaged", [(), (70,), (70, 71, 200)])
def test_pieces_of_a_damaged_head_do_not_swallow_what_they_point_at(write, damaged):
    records, places = with_digits()
    for number in (0, *damaged):
        records[number] = b"\x40" + records[number][1:]
    whole = [place for number, place in enumerate(places) if number not in (0, *damaged)]
    assert diskqueue.walk(write(*records), MAX_RECORD) == whole


def test_a_size_that_leads_to_pieces_of_a_head_is_damage(write):
    records, places = with_digits()
    records[5] = struct.pack(">i", places[200][0] + 1 - places[5][0] - RECORD_SIZE_BYTES) + records[5][RECORD_SIZE_BYTES:]
    assert diskqueue.walk(write(*records), MAX_RECORD) == places[:5] + places[6:]


def test_a_tail_that_is_cut_off(write):
    whole = record(0) + record(1)
    for cut in range(len(record(1))):
        path = write(whole[:len(record(0)) + cut])
        assert diskqueue.walk(path, MAX_RECORD) == [(0, 34)]
        assert count(path, 0, MAX_RECORD) == (1, 34, 0, 34 + cut)


def test_a_block_has_whole_records_and_at_least_one(write):
    records = [record(number, b"x" * 100) for number in range(40)]
    path, size = write(*records), 130
    for want in (1, size, 5 * size - 1, 7 * size + 30, 10**6):
        answer, begin, data = diskqueue.block(path, 0, -1, MAX_RECORD, want)
        assert (answer, begin) == (1, 0)
        assert len(data) % size == 0 and data == b"".join(records)[:len(data)] and data
    assert diskqueue.block(path, 0, -1, MAX_RECORD, 10**6)[2] == b"".join(records)
    assert diskqueue.block(path, 3 * size, 5 * size, MAX_RECORD, 10**6) == (1, 3 * size, b"".join(records[3:5]))


def test_a_block_ends_before_damage_and_begins_behind_it(write):
    records = [record(number, b"x" * 100) for number in range(6)]
    path = write(*records[:3], b"\xff" * 77, *records[3:])
    answer, begin, data = diskqueue.block(path, 0, -1, MAX_RECORD, 10**6)
    assert (answer, begin) == (1, 0) and data in [b"".join(records[:count]) for count in (1, 2, 3)]
    assert diskqueue.block(path, 390, -1, MAX_RECORD, 10**6) == (1, 467, b"".join(records[3:]))


def test_blocks_of_nothing(write):
    path = write(record(0)[:20])
    assert diskqueue.block(path, 0, -1, MAX_RECORD, 1000)[::2] == (0, b"")
    assert diskqueue.block(path + "-missing", 0, -1, MAX_RECORD, 1000)[::2] == (-errno.ENOENT, b"")
    with pytest.raises(FileNotFoundError):
        count(path + "-missing", 0, MAX_RECORD)


def test_a_page_that_cannot_be_read_is_lost_and_nothing_else(write):
    records = [record(number, b"x" * 994) for number in range(40)]  # 1024 bytes each, four to a page
    path = write(*records)
    try:
        # The first read asks for everything and fails; then each page has three attempts: the first page loses them.
        fileio.fail("read", errno.EIO, times=4)
        places = diskqueue.walk(path, MAX_RECORD)
    finally:
        fileio.fail("read", 0, times=0)
    assert places == [(at, 1024) for at in range(4096, 40 * 1024, 1024)]
