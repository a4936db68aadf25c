"""What lies in the folder of a log topic, also if it is torn or damaged."""

import pytest

from nsqc.store.log.files import locate, offset_at, read_folder, segment_of, time_of
from nsqc.store.log.format import TIME_UNIT
from tests.store.log.segments import BASE, STEP, due_entry, record, write_segment

GAP = 5000


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "topic.log"


@pytest.fixture
def written(folder):
    """Three segments, with a gap before the last."""
    return [write_segment(folder, 0, 40), write_segment(folder, 40, 7), write_segment(folder, GAP, 25)]


def flip(path, at: int, bits: int = 0x10) -> None:
    """Damages one byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def test_a_sound_folder(folder, written):
    (folder / f"{40:020}.due").write_bytes(due_entry(41, BASE))
    (folder / f"{99:020}.idx").write_bytes(b"")
    (folder / "cursors.000001.journal").write_bytes(b"")
    (folder / "00000000000000000040.dat.bad").write_bytes(b"")
    found = read_folder(str(folder))
    assert found.bounds == [segment.bounds for segment in written]
    assert [segment.entries for segment in found.segments] == [40, 7, 25]
    assert [segment.size for segment in found.segments] == [segment.bounds[2] for segment in written]
    assert (found.due, found.orphans, found.next) == ([40], [f"{99:020}.idx"], GAP + 25)
    assert found.segments[1].last_ns == BASE + 40 * STEP + 6 * STEP // TIME_UNIT * TIME_UNIT


def test_an_empty_folder(folder):
    folder.mkdir()
    found = read_folder(str(folder))
    assert (found.segments, found.next) == ([], 0)
    assert offset_at(str(folder), found.bounds, BASE) == 0
    assert time_of(str(folder), found.bounds, 0) is None


def test_the_end_is_behind_the_last_record_that_is_whole_at_every_cut(folder):
    whole = write_segment(folder, 5, 6)
    data, index = whole.dat.read_bytes(), whole.idx.read_bytes()
    for size in range(len(data) + 1):
        whole.dat.write_bytes(data[:size])
        end = max(offset for offset in range(5, 12) if whole.position(offset) <= size)
        assert read_folder(str(folder)).bounds == [(5, end, whole.position(end))]
    for size in range(32, len(index) + 1):
        whole.idx.write_bytes(index[:size])
        end = 5 + (size - 32) // 16
        assert read_folder(str(folder)).bounds == [(5, end, whole.position(end))]


def test_a_batch_that_is_not_whole_does_not_count(folder):
    whole = write_segment(folder, 0, 10, more=[5, 6, 9])
    assert read_folder(str(folder)).bounds == [(0, 9, whole.position(9))]
    whole.idx.write_bytes(whole.idx.read_bytes()[:32 + 7 * 16])
    assert read_folder(str(folder)).bounds == [(0, 5, whole.position(5))]


def test_what_reaches_into_the_next_segment_does_not_count(folder):
    first = write_segment(folder, 0, 10)
    write_segment(folder, 8, 3)
    assert read_folder(str(folder)).bounds[0] == (0, 8, first.position(8))


def test_refused_bytes_behind_the_last_entry_do_not_count(folder):
    whole = write_segment(folder, 0, 10, tail=record(10) + b"half a rec")
    segment = read_folder(str(folder)).segments[0]
    assert segment.bounds == whole.bounds and segment.size > segment.bytes


def test_damage_at_the_end_and_before(folder):
    whole = write_segment(folder, 0, 10)
    flip(whole.dat, whole.position(9) + 35)
    assert read_folder(str(folder)).bounds == [(0, 9, whole.position(9))]
    flip(whole.dat, whole.position(3) + 35)
    assert read_folder(str(folder)).bounds == [(0, 9, whole.position(9))]
    flip(whole.idx, 32 + 16 * 8)
    assert read_folder(str(folder)).bounds == [(0, 8, whole.position(8))]


@pytest.mark.parametrize("damage", ["missing", "head", "all", "empty"])
def test_without_a_usable_index_records_are_counted(folder, damage):
    whole = write_segment(folder, 7, 10)
    if damage == "missing":
        whole.idx.unlink()
    elif damage == "empty":
        whole.idx.write_bytes(b"")
    else:
        flip(whole.idx, 9)
        if damage == "all":
            whole.idx.write_bytes(bytes(len(whole.idx.read_bytes())))
    segment = read_folder(str(folder)).segments[0]
    assert (segment.bounds, segment.base_ns) == (whole.bounds, None)
    for offset in range(7, 17):
        length = len(whole.records[offset - 7])
        assert locate(str(folder), segment.bounds, offset) == (whole.position(offset), length)


def test_segment_of(written):
    bounds = [segment.bounds for segment in written]
    assert [segment_of(bounds, offset)[0] for offset in (0, 39, 40, 46, 47, GAP, GAP + 24)] == [
        0, 0, 40, 40, GAP, GAP, GAP]
    assert segment_of(bounds, GAP + 25) is None
    assert segment_of(bounds[1:], 3) == bounds[1]


def test_every_damaged_entry_is_found_by_way_of_the_records(folder):
    whole = write_segment(folder, 0, 12)
    index = whole.idx.read_bytes()
    for damaged in range(12):
        whole.idx.write_bytes(index)
        flip(whole.idx, 32 + 16 * damaged + damaged, 0x40)
        for offset in range(12):
            assert locate(str(folder), whole.bounds, offset) == (whole.position(offset), len(whole.records[offset]))


def test_a_record_whose_size_is_damaged_is_left_out(folder):
    whole = write_segment(folder, 0, 12)
    flip(whole.dat, whole.position(4) + 3)
    assert locate(str(folder), whole.bounds, 4) is None
    assert locate(str(folder), whole.bounds, 5) == (whole.position(5), len(whole.records[5]))
    flip(whole.dat, whole.position(11) + 3)
    assert locate(str(folder), whole.bounds, 11) is None


def test_an_intact_record_before_bytes_of_no_message(folder):
    whole = write_segment(folder, 0, 3)
    with whole.dat.open("ab") as file:
        file.write(b"rest")
    assert locate(str(folder), (0, 3, whole.bounds[2] + 4), 2) == (whole.position(2), len(whole.records[2]))


def test_times(folder, written):
    bounds = [segment.bounds for segment in written]
    for offset in (0, 3, 39, 40, 46, GAP, GAP + 24):
        at = BASE + offset * STEP
        assert offset_at(str(folder), bounds, at) == offset
        assert at - TIME_UNIT < time_of(str(folder), bounds, offset) <= at
    assert offset_at(str(folder), bounds, 0) == 0
    assert offset_at(str(folder), bounds, BASE + 3 * STEP + STEP // 2) == 4
    assert offset_at(str(folder), bounds, BASE + 46 * STEP + STEP // 2) == GAP
    assert offset_at(str(folder), bounds, BASE + (GAP + 25) * STEP) == GAP + 25


def test_times_with_damaged_entries_are_never_late(folder):
    whole = write_segment(folder, 0, 30)
    for damaged in range(0, 30, 3):
        flip(whole.idx, 32 + 16 * damaged)
    for offset in range(30):
        assert offset_at(str(folder), [whole.bounds], BASE + offset * STEP) in (offset - 1, offset)
    whole.idx.write_bytes(b"")
    assert offset_at(str(folder), [whole.bounds], BASE + 5 * STEP) == 0
