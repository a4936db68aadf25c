"""A start's reading of a folder: valid frames count, and each later start finds the same."""

import os
import random
import shutil
import threading
from typing import NamedTuple

import pytest

from nsqc.store.log.check import check_folder, read_log
from nsqc.store.log.export import Sources
from nsqc.store.log.manager import Looks, read_progress
from nsqc.store.log.names import MOST_OFFSET, segment_path
from nsqc.store.log.recovery import LogError, Opened, read_folder, read_frames
from tests.compiled.logs import compact_folder
from tests.store.log import segments
from tests.store.log.journals import ADVANCE, DROP, NAME, RESET, journal_path, write_journal
from tests.store.log.segments import Written, body_of, read_bodies, sealed, write_log, write_manifest, write_segment

RESERVED = 1 << 40


def start(folder, power_failed: bool = False) -> Opened:
    """Reads it as a daemon does: the manifest is written after a power failure."""
    return Looks([str(folder)], power_failed).take(str(folder))


class Shown(NamedTuple):
    """The result of a start for a log."""

    bounds: list[tuple[int, int, int, int]]
    bodies: dict[int, bytes]
    lost: int


def shown(folder, opened: Opened) -> Shown:
    return Shown([segment[:4] for segment in opened.segments], read_bodies(folder, opened),
                 opened.lost + sum(segment.lost for segment in opened.segments))


def valid(segment: Written, whole: bytes) -> list[int]:
    """The unchanged frames, by number."""
    data = segment.path.read_bytes() if segment.path.exists() else b""
    return [number for number, place in enumerate(segment.frames)
            if data[place.position:place.end] == whole[place.position:place.end]
            and len(data) >= (place.end + 7) // 8 * 8]


@pytest.fixture
def folder(tmp_path):
    """Three segments, of which the second ends with a batch of several frames; a channel."""
    made = tmp_path / "topic.log"
    write_log(made, [(0, 40), (40, 50), (90, 30)], per_frame=2, more=range(60, 88, 2))
    write_journal(made, [(1, [(RESET, 0), (NAME, "c"), (ADVANCE, 50)])])
    return made


# ---------------------------------------------------------------------- valid data


@pytest.mark.parametrize("power_failed", [False, True])
def test_a_sound_folder(folder, power_failed):
    for opened in (start(folder, power_failed), start(folder), read_folder(str(folder))):
        assert shown(folder, opened).bodies == {offset: body_of(offset) for offset in range(120)}
        assert (opened.next, opened.resume_at, opened.lost) == (120, RESERVED if power_failed else 120, 0)
        assert (opened.earlier.channels, opened.earlier.reached, opened.earlier.damaged) == ([b"c"], 50, 0)
    # After a power failure, the file may have the recorded size, but not what was written since.
    assert (start(folder).clean, start(folder, True).clean) == (True, False)


def lose(path, dice: random.Random, share: float, sector: int = 64) -> None:
    """Sectors become zeros; the file may also be shorter. Not its first block."""
    data = bytearray(path.read_bytes())
    for at in range(4096, len(data), sector):
        if dice.random() < share:
            data[at:at + sector] = bytes(len(data[at:at + sector]))
    path.write_bytes(data[:dice.randrange(4096, len(data) + 1)] if dice.random() < share else data)


@pytest.mark.parametrize("seed", range(20))
def test_after_a_kill_valid_frames_count_up_to_the_end_of_a_batch(tmp_path, seed):
    """The model: all valid frames of a segment with a known end; of the last, up to one that ends a batch."""
    dice, folder = random.Random(seed), tmp_path / "topic.log"
    more = {at for at in range(0, 90, 2) if dice.random() < 0.4}
    written = write_log(folder, [(0, 40), (40, 50)], per_frame=2, more=more, clean=False)
    whole = [segment.path.read_bytes() for segment in written]
    for segment in written:
        lose(segment.path, dice, 0.1)
    kept = [valid(*pair) for pair in zip(written, whole, strict=True)]
    ends = [number for number in kept[1] if written[1].frames[number].first not in more]
    kept[1] = [number for number in kept[1] if ends and number <= ends[-1]]
    model = {offset: body_of(offset) for segment, numbers in zip(written, kept, strict=True) for number in numbers
             for offset in range(segment.frames[number].first, segment.frames[number].next)}
    check_starts(folder, model, [False, False])
    assert read_folder(str(folder)).next == (written[1].frames[ends[-1]].next if ends else 40)


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_failure_nothing_counts_after_a_hole_that_was_never_durable(tmp_path, seed):
    """The model: valid frames of the last segment, up to the first hole at or after the end known to be on disk."""
    dice, folder = random.Random(seed), tmp_path / "topic.log"
    synced = bool(seed % 2)
    (written,) = write_log(folder, [(0, 60)], per_frame=2, more={at for at in range(0, 60, 2) if dice.random() < 0.4},
                           clean=False, synced=synced)
    whole = written.path.read_bytes()
    lose(written.path, dice, 0.05)
    kept, found = valid(written, whole), []
    durable = written.frames[kept[-1]].position if synced and kept else 4096
    for number, place in enumerate(written.frames):
        if number in kept:
            found.append(number)
        elif place.position >= durable:
            break
    kept = found
    ends = [number for number in kept if not is_part(written, whole, number)]
    kept = [number for number in kept if ends and number <= ends[-1]]
    model = {offset: body_of(offset) for number in kept
             for offset in range(written.frames[number].first, written.frames[number].next)}
    check_starts(folder, model, [True, False, True, False])
    opened = start(folder)
    assert opened.resume_at >= RESERVED, "an offset may repeat"


def is_part(written: Written, whole: bytes, number: int) -> bool:
    """Whether its batch continues."""
    return bool(whole[written.frames[number].position + 17] & 1)


def check_starts(folder, model: dict[int, bytes], starts: list[bool]) -> None:
    """Each start finds this, in the same places, and so do the tools."""
    first = shown(folder, start(folder, starts[0]))
    assert first.bodies == model
    resume_at = 0
    for power_failed in starts[1:]:
        opened = start(folder, power_failed)
        assert shown(folder, opened) == first
        assert opened.resume_at >= resume_at
        resume_at = opened.resume_at
    opened = read_folder(str(folder))
    assert shown(folder, opened) == first
    assert sum(read_frames(segment_path(str(folder), segment.first), segment)[0] for segment in opened.segments) == len(model)
    assert check_folder(str(folder)).records == len(model)
    sound = {offset for first, end in Sources(read_log(str(folder))).sound for offset in range(first, end)}
    assert sound == model.keys()


def test_what_was_written_after_a_stop_counts(folder):
    """The manifest still has the segment's earlier end."""
    (folder / f"{90:020}.log").unlink()
    written = write_log(folder, [(0, 40), (40, 20)], per_frame=2)
    data = written[1].path.read_bytes()
    (folder.parent / "longer.log").mkdir()
    more = write_segment(folder.parent / "longer.log", 40, 30, written[0], per_frame=2)
    assert more.path.read_bytes()[:len(data)] == data
    written[1].path.write_bytes(more.path.read_bytes())
    opened = start(folder)
    assert (opened.next, opened.clean) == (70, False)
    os.truncate(written[1].path, len(data) - 300)
    opened = start(folder)
    assert opened.next == opened.resume_at == 60, "offsets fall"
    assert opened.segments[1].damaged > 0
    assert shown(folder, opened).bodies.keys() < set(range(60))


@pytest.mark.parametrize("size", [0, 100, 4096, 4210])
@pytest.mark.parametrize("clean", [True, False])
def test_a_newest_segment_whose_file_was_cut(folder, size, clean):
    (folder / f"{90:020}.log").unlink()
    written = write_log(folder, [(0, 40), (40, 20)], per_frame=2, clean=clean)
    os.truncate(written[1].path, size)
    opened = start(folder)
    assert (opened.next, opened.clean) == (60 if clean else 40 if size <= 4096 else 42, False)
    assert opened.segments[1].damaged == (0 if not clean else 20 if size <= 4096 else 18)
    assert start(folder, True).resume_at >= RESERVED


# ---------------------------------------------------------------------- files


def test_without_its_last_or_only_segment_offsets_do_not_fall(folder):
    for first in (90, 40, 0):
        (folder / f"{first:020}.log").unlink()
        for opened in (start(folder), start(folder, True), start(folder), read_folder(str(folder))):
            assert opened.lost > 0
            assert opened.resume_at >= RESERVED


def test_segments_that_the_manifest_does_not_know_count(folder):
    """It is from an earlier moment, or a kill came before it was replaced. Another power failure, another jump."""
    known = write_log(folder, [(0, 40)], per_frame=2)
    assert (start(folder).next, start(folder).unlisted, start(folder).lost) == (120, 2, 0)
    write_segment(folder, 130, 2, sequence=5)       # a copy without the one before it
    assert (start(folder).next, start(folder).unlisted) == (132, 3)
    write_manifest(folder, known[0], reserved=100)
    assert (start(folder, True).resume_at, start(folder, True).resume_at) == (132 + RESERVED, 132 + 2 * RESERVED)
    assert (start(folder).next, start(folder).unlisted) == (132, 0)
    (folder / "manifest").unlink()
    assert start(folder, True).resume_at == 132 + RESERVED
    write_segment(folder, 140, 2, sequence=6, log_id=77)
    assert start(folder).next == 132


@pytest.mark.parametrize("name, text", [
    (f"{0:020}.dat", "no release has written"), (f"{0:020}.idx", "no release has written"),
    ("manifest", "later version"), (f"{40:020}.log", "later version")])
def test_a_folder_that_is_refused_stays_as_it_is(folder, name, text):
    path = folder / name
    if path.exists():
        data = bytearray(path.read_bytes())
        data[11] += 1
        for at in (0, 2048):
            data[at:at + 128] = sealed(bytes(data[:124]))
        path.write_bytes(data[:128] if name == "manifest" else data)
    else:
        path.write_bytes(b"x")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for power_failed in (False, True):
        with pytest.raises(LogError, match=text):
            start(folder, power_failed)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_frame_of_a_later_version_refuses_the_folder(folder):
    (folder / f"{90:020}.log").unlink()
    written = write_log(folder, [(0, 40), (40, 4)], clean=False)[1]
    place, data = written.frames[1], written.path.read_bytes()
    made = segments.frame(written.salt, place.position, place.first, 1, {}, 0x80, 4096)
    written.path.write_bytes(data[:place.position] + made + data[place.end:])
    with pytest.raises(LogError, match="later version"):
        start(folder)


@pytest.mark.parametrize("reached, resumes", [(300, 300), (2**63 - 1, 120), (MOST_OFFSET, 120)])
def test_numbering_continues_where_a_channel_is(folder, reached, resumes):
    """Unless it gives an offset that no log reaches."""
    write_journal(folder, [(1, [(RESET, 0), (ADVANCE, reached)])])
    assert start(folder).resume_at == resumes


def test_what_a_power_failure_says_is_kept_when_the_channel_goes(folder):
    for first in (40, 90):
        (folder / f"{first:020}.log").unlink()
    write_manifest(folder, write_log(folder, [(0, 40)])[0], clean=False)
    write_journal(folder, [(1, [(ADVANCE, RESERVED + 7)])])
    assert start(folder).resume_at == RESERVED + 7
    assert start(folder, True).resume_at == RESERVED + 7
    write_journal(folder, [(1, [(DROP,)])])
    assert start(folder).resume_at >= RESERVED


def test_threads_and_the_one_who_waits_share_the_folders(folder, tmp_path):
    folders = []
    for number in range(300):
        copy = tmp_path / f"t{number}.log"
        shutil.copytree(folder, copy)
        folders.append(str(copy))
    looks = Looks(folders, False)
    threads = [threading.Thread(target=looks.run) for _ in range(3)]
    for thread in threads:
        thread.start()
    taken = [looks.take(name) for name in (*folders[150:], *folders[:150])]
    for thread in threads:
        thread.join()
    assert all(seen.id == 255 and len(seen.segments) == 3 for seen in taken)
    assert looks.take(folders[0]) is not taken[150]


@pytest.mark.parametrize("other", ["cursors.000066", "cursors.999999999999"])
def test_what_only_has_the_name_of_a_journal(folder, other):
    """It is reported as damaged, and changes nothing."""
    (folder / other).write_bytes(b"x" * 100)
    assert [channel.name for channel in read_progress(str(folder)).channels] == ["c"]
    assert read_progress(str(folder)).files == [("cursors.000001", False), (other, True)]
    assert start(folder).earlier.damaged


@pytest.mark.parametrize("other", ["cursors.000002", "cursors.999999999999", "cursors.1000000000000"])
def test_the_journal_goes_on_beside_a_file_with_its_name(folder, other):
    (folder / other).write_bytes(b"x" * 100)
    for number in range(2, 5):
        compact_folder(str(folder))
        assert sorted(path.name for path in folder.glob("cursors.*")) == sorted([
            f"{other}.bad", f"cursors.{number + (other == 'cursors.000002'):06}"])
    assert [channel.name for channel in read_progress(str(folder)).channels] == ["c"]


def test_a_journal_whose_only_file_is_lost_begins_with_another(folder):
    journal_path(folder).write_bytes(b"x" * 100)
    write_journal(folder, [(1, [(RESET, 0), (NAME, "d")])], file=2)
    assert [channel.name for channel in read_progress(str(folder)).channels] == ["d"]
    assert start(folder).earlier.damaged


@pytest.mark.parametrize("other", ["cursors.1", "cursors.0000070", "cursors.9999999999999", "cursors.000002.bad",
                                   "cursors.tmp", "cursors.000000"])
def test_what_has_not_even_the_name_of_a_journal(folder, other):
    (folder / other).write_bytes(journal_path(folder).read_bytes())
    assert read_progress(str(folder)).files == [("cursors.000001", False)]
    assert not start(folder).earlier.damaged


@pytest.mark.parametrize("other", ["cursors.000001.journal", "cursors.000002.snapshot"])
def test_a_journal_in_the_old_format(folder, other):
    (folder / other).touch()
    with pytest.raises(LogError, match="a format that no release has written"):
        start(folder)
