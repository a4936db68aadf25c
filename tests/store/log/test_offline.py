"""Frames of a segment for tools, whatever is damaged."""

import os

import pytest

from nsqc.store.log.offline import FrameWalk, has_index, read_head
from nsqc.store.log.recovery import LogError, SegmentState, read_folder
from nsqc.store.log.summary import read_log, time_of
from tests.store.log.segments import BASE, LOG_ID, STEP, frame, record, write_log

GAP = 5000


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "topic.log"


def only(folder) -> SegmentState:
    """Of one segment."""
    (segment,) = read_folder(str(folder)).segments
    return segment


def flip(path, at: int, bits: int = 0x10) -> None:
    """Damages one byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def frames(folder, segment, offset: int = 0, heads: bool = False) -> list[tuple[int, int, int, int]]:
    """First offset, offset after the last, damage before it and lost records, of each frame and of the end."""
    walk, found, more = FrameWalk(str(folder), segment, offset, heads), [], True
    while more:
        more = walk.step()
        found.append((walk.first, walk.end, walk.hole, walk.lost))
    return found


def test_a_sound_folder(folder):
    written = write_log(folder, [(0, 40), (40, 7), (GAP, 25)], per_frame=5)
    found = read_folder(str(folder))
    assert [segment[:4] for segment in found.segments] == [segment.bounds for segment in written]
    assert [segment.size for segment in found.segments] == [segment.path.stat().st_size for segment in written]
    assert (found.next, found.id, found.clean, found.lost, found.has_manifest) == (GAP + 25, LOG_ID, True, 0, True)
    assert [segment.lost for segment in found.segments] == [0, 0, 0]
    assert frames(folder, found.segments[1]) == [(40, 45, -1, 0), (45, 47, -1, 0), (47, 47, -1, 0)]
    assert [read_head(str(segment.path)) for segment in written] == [
        (2, LOG_ID, number, segment.first) for number, segment in enumerate(written, 1)]
    assert [has_index(str(segment.path), segment.salt) for segment in written] == [True, True, False]


def test_records_as_disk_queues_have_them(folder):
    (written,) = write_log(folder, [(3, 10)])
    walk = FrameWalk(str(folder), only(folder))
    for offset in range(3, 13):
        assert walk.step()
        assert walk.queue_records(offset, offset + 1, 7) == record(offset, 7)
        assert walk.queue_bytes == len(record(offset))
        assert walk.queue_records(offset, offset, 0) == b""
        for first, end in ((offset - 1, offset), (offset, offset + 2), (offset + 1, offset)):
            with pytest.raises(ValueError):
                walk.queue_records(first, end, 0)
    assert not walk.step()
    assert written.end == walk.end


def test_records_of_a_frame_have_one_time_and_ids_in_order(folder):
    write_log(folder, [(0, 9)], per_frame=4, delays={5: BASE, 7: BASE})
    walk = FrameWalk(str(folder), only(folder))
    walk.step()
    walk.step()
    found = walk.queue_records(4, 8, 0)
    assert found == b"".join(record(offset)[:4] + record(4)[4:12] + record(offset)[12:] for offset in range(4, 8))
    assert walk.queue_bytes == len(found)
    assert walk.queue_records(5, 7, 0) == found[len(record(4)):-len(record(7))]


def test_damage_and_the_end_of_the_file(folder):
    (written,) = write_log(folder, [(0, 20)], per_frame=2)
    whole, segment, places = written.path.read_bytes(), only(folder), written.frames
    flip(written.path, places[3].position + 9)          # the head
    flip(written.path, places[4].end - 1)               # the payload
    os.truncate(written.path, places[8].position)
    assert frames(folder, segment) == [
        (0, 2, -1, 0), (2, 4, -1, 0), (4, 6, -1, 0), (10, 12, places[3].position, 4), (12, 14, -1, 0), (14, 16, -1, 0),
        (20, 20, places[8].position, 4)]
    written.path.write_bytes(whole[:100])
    assert frames(folder, segment) == [(20, 20, 4096, 20)]
    assert read_head(str(written.path)) == (0, 0, 0, 0)


def test_a_walk_begins_near_an_offset(folder):
    written = write_log(folder, [(0, 3000), (3000, 2)])[0]
    segment = read_folder(str(folder)).segments[0]
    assert written.position > 4 * 65536
    for offset in (0, 1, 1500, 2999):
        walk = FrameWalk(str(folder), segment, offset)
        assert walk.reach(offset) and walk.first == offset
        assert walk.reach(offset) and walk.first == offset
        assert walk.lost == 0
    steps = 0
    walk = FrameWalk(str(folder), segment, 2999)
    while walk.first != 2999:
        assert walk.step()
        steps += 1
    assert steps < 1000
    assert not walk.reach(3000) and not walk.reach(3000)
    flip(written.path, -1)                              # without an index, it begins at the first frame
    walk = FrameWalk(str(folder), segment, 2999)
    assert walk.step() and walk.first == 0
    assert walk.reach(2999)


def test_times(folder):
    written = write_log(folder, [(0, 40), (40, 7), (GAP, 25)])
    log = read_log(str(folder))
    for offset in (0, 3, 39, 40, 46, GAP, GAP + 24):
        assert time_of(log, offset) == BASE + offset * STEP
    assert time_of(log, 47) == BASE + GAP * STEP
    assert time_of(log, GAP + 25) is None
    flip(written[1].path, written[1].frames[3].position)
    assert time_of(log, 43) == BASE + 44 * STEP


def test_a_frame_of_a_later_version(folder):
    (written,) = write_log(folder, [(0, 4)])
    segment = only(folder)
    made = frame(segment.salt, written.frames[1].position, 1, 1, {}, 0x80, 4096)
    data = written.path.read_bytes()
    place = written.frames[1]
    written.path.write_bytes(data[:place.position] + made + data[place.end:])
    with pytest.raises(LogError, match="later version"):
        frames(folder, segment)


def test_files_that_are_not_there(folder, tmp_path):
    write_log(folder, [(0, 4)])
    segment = only(folder)
    (folder / f"{0:020}.log").unlink()
    for call in (lambda: FrameWalk(str(folder), segment), lambda: read_head(str(folder / "x")),
                 lambda: has_index(str(folder / "x"), 1), lambda: read_folder(str(tmp_path / "none"))):
        with pytest.raises(FileNotFoundError):
            call()
