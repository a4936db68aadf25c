"""Tools' reading of segments, for any damage."""

import os

import pytest

from nsqc.store.log.check import read_log, time_of
from nsqc.store.log.export import Chunk, ExportError, copied
from nsqc.store.log.names import Segment
from nsqc.store.log.recovery import LogError, has_index, read_folder, read_frames, read_head
from tests.store.log.segments import BASE, LOG_ID, STEP, frame, record, write_log

GAP = 5000


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "topic.log"


def only(folder) -> Segment:
    """Of one segment."""
    (segment,) = read_folder(str(folder)).segments
    return segment


def flip(path, at: int, bits: int = 0x10) -> None:
    """Damages one byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def test_a_sound_folder(folder):
    written = write_log(folder, [(0, 40), (40, 7), (GAP, 25)], per_frame=5)
    found = read_folder(str(folder))
    assert [segment[:4] for segment in found.segments] == [segment.bounds for segment in written]
    assert [segment.size for segment in found.segments] == [segment.path.stat().st_size for segment in written]
    assert (found.next, found.id, found.clean, found.lost, found.has_manifest) == (GAP + 25, LOG_ID, True, 0, True)
    assert [segment.lost for segment in found.segments] == [0, 0, 0]
    for segment, state in zip(written, found.segments, strict=True):
        size = sum(len(record(offset)) for offset in range(segment.first, segment.end))
        assert read_frames(str(segment.path), state) == (segment.end - segment.first, size, [])
    assert [read_head(str(segment.path)) for segment in written] == [
        (2, LOG_ID, number, segment.first) for number, segment in enumerate(written, 1)]
    assert [has_index(str(segment.path), segment.salt) for segment in written] == [True, True, False]


def test_damage_and_the_end_of_the_file(folder):
    (written,) = write_log(folder, [(0, 20)], per_frame=2)
    whole, segment, places, path = written.path.read_bytes(), only(folder), written.frames, str(written.path)
    flip(written.path, places[3].position + 9)          # the head
    flip(written.path, places[4].end - 1)               # the payload
    os.truncate(written.path, places[8].position)
    size = sum(len(record(offset)) for offset in [*range(6), *range(10, 16)])
    assert read_frames(path, segment) == (12, size, [(places[3].position, 6, 10), (places[8].position, 16, 20)])
    written.path.write_bytes(whole[:100])
    assert read_frames(path, segment) == (0, 0, [(4096, 0, 20)])
    assert read_head(path) == (0, 0, 0, 0)


def test_a_large_segment_whose_file_was_cut_takes_no_time(folder):
    """No frame is searched for where there is no file: with a read each, this would take a day."""
    (written,) = write_log(folder, [(0, 4)])
    segment = only(folder)._replace(position=1 << 45, end=1 << 40)
    assert read_frames(str(written.path), segment)[2] == [(written.position, 4, 1 << 40)]


def test_times(folder):
    written = write_log(folder, [(0, 40), (40, 7), (GAP, 25)])
    log = read_log(str(folder))
    for offset in (0, 3, 39, 40, 46, GAP, GAP + 24):
        assert time_of(log, offset) == BASE + offset * STEP
    assert time_of(log, 47) == BASE + GAP * STEP
    assert time_of(log, GAP + 25) is None
    flip(written[1].path, written[1].frames[3].position)
    flip(written[1].path, written[1].frames[6].position)
    assert time_of(log, 43) == BASE + 44 * STEP
    assert time_of(log, 46) == BASE + GAP * STEP


def test_records_as_disk_queues_have_them(folder):
    write_log(folder, [(3, 37), (40, 7), (GAP, 2500)], per_frame=1)
    chunks = [Chunk(4, 6, 1), Chunk(6, 7, 300), Chunk(39, 40, 2), Chunk(GAP + 3, GAP + 4, 1),
              Chunk(3, 40, 0), Chunk(41, 47, 0), Chunk(GAP, GAP + 2500, 0)]
    expected = [record(offset, chunk.attempts) for chunk in chunks for offset in range(chunk.first, chunk.end)]
    assert b"".join(copied(str(folder), read_folder(str(folder)).segments, chunks)) == b"".join(expected)


def test_records_that_go_while_they_are_copied(folder):
    (written,) = write_log(folder, [(0, 40)])
    segments = read_folder(str(folder)).segments
    flip(written.path, written.frames[7].position)
    with pytest.raises(ExportError, match="changes while it is read"):
        list(copied(str(folder), segments, [Chunk(0, 40, 0)]))


def test_a_frame_of_a_later_version(folder):
    (written,) = write_log(folder, [(0, 4)])
    segment, place, data = only(folder), written.frames[1], written.path.read_bytes()
    made = frame(segment.salt, place.position, 1, 1, {}, 0x80, 4096)
    written.path.write_bytes(data[:place.position] + made + data[place.end:])
    with pytest.raises(LogError, match="later version"):
        read_frames(str(written.path), segment)


def test_files_that_are_not_there(folder, tmp_path):
    write_log(folder, [(0, 4)])
    segment = only(folder)
    for call in (lambda: read_frames(str(folder / "x"), segment), lambda: read_head(str(folder / "x")),
                 lambda: has_index(str(folder / "x"), 1), lambda: read_folder(str(tmp_path / "none"))):
        with pytest.raises(FileNotFoundError):
            call()
