"""Where numbering continues after a start: never before an offset that may have been used, whatever starts follow."""

import os

import pytest

from nsqc.store.log import recovery
from nsqc.store.log.files import read_folder
from nsqc.store.log.look import Looks
from nsqc.store.log.names import next_path
from tests.store.log.journals import ADVANCE, DROP, NAME, RESET, frame, section, write_journal
from tests.store.log.segments import write_segment
from tests.store.log.test_look import Silent

JUMP = recovery.JUMP


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "topic.log"
    write_segment(made, 0, 40)
    write_segment(made, 40, 20)
    (made / "id.00000000000000ff").touch()
    return made


def start(folder, power_failed=False):
    """What a start finds."""
    return recovery.open_folder(str(folder), power_failed, Silent(), Looks([os.fsencode(folder)]))


def marks(folder):
    return sorted(path.name for path in folder.glob("next.*"))


def empty(folder, first):
    """As a power failure leaves a segment that was not synced."""
    for kind in ("dat", "idx"):
        os.truncate(folder / f"{first:020}.{kind}", 0)


@pytest.mark.parametrize("lost, begun, end", [
    ((), 40, 60),
    ((40,), 40, 40),
    ((0, 40), 40, 40),
])
def test_after_a_power_failure_numbering_does_not_fall_back(folder, lost, begun, end):
    for first in lost:
        empty(folder, first)
    for power_failed in (True, False, False, True, False):
        found = start(folder, power_failed)
        assert (found.next if found.segments else end, found.resume_at, found.ends) == (end, begun + JUMP, True)
        assert marks(folder) == [f"next.{begun + JUMP:020}"]
    assert all((folder / f"{first:020}.dat").exists() != (first in lost) for first in (0, 40))


def test_a_mark_goes_once_a_segment_has_begun_there(folder):
    start(folder, True)
    write_segment(folder, 40 + JUMP - (40 + JUMP) % 40, 1).dat.unlink()     # an index alone says nothing
    assert start(folder).resume_at == 40 + JUMP
    (folder / f"{60:020}.dat").touch()                                      # begun, and never acknowledged
    found = start(folder)
    assert (found.next, found.resume_at) == (60, 40 + JUMP)
    assert marks(folder) == [f"next.{40 + JUMP:020}"]
    os.rename(folder / f"{40:020}.dat", folder / f"{40 + JUMP:020}.dat")    # as if published there
    os.rename(folder / f"{40:020}.idx", folder / f"{40 + JUMP:020}.idx")
    found = start(folder)
    assert found.next > 40 + JUMP == found.segments[-1].first
    assert not marks(folder)


def test_a_power_failure_after_that_jumps_from_there(folder):
    start(folder, True)
    for kind in ("dat", "idx"):
        (folder / f"{40 + JUMP:020}.{kind}").touch()
    for power_failed in (True, False, False):
        assert start(folder, power_failed).resume_at == 40 + 2 * JUMP
        assert marks(folder) == [f"next.{40 + 2 * JUMP:020}"]


def test_what_a_channel_says_is_kept_when_it_goes(folder):
    """Of a segment that somebody has removed."""
    write_journal(folder, 1, frame(section(1, [(RESET, 0), (NAME, "c"), (ADVANCE, 100)])))
    assert start(folder).resume_at == 100
    write_journal(folder, 2, frame(section(1, [(DROP,)])))
    for _ in range(2):
        assert start(folder).resume_at == 100


def test_a_journal_that_says_what_no_log_comes_to(folder):
    write_journal(folder, 1, frame(section(0, [(RESET, 2**63 - 1)]), section(1, [(RESET, 0), (NAME, "c"), (ADVANCE, 2**63 - 1)])))
    assert start(folder).resume_at == 60
    for path in folder.glob("*.*t"):
        path.unlink()
    assert start(folder).resume_at == 0


@pytest.mark.parametrize("name", [
    "next.1", f"next.{2**62 + 1:020}", f"next.{10**20 - 1}", f"next.{7:020}x", f"next.{7:020}.dat", f"next.{7:019}x"])
def test_other_names_say_nothing(folder, name):
    (folder / name).touch()
    assert start(folder).resume_at == 60
    assert (folder / name).exists()


def test_both_ways_know_the_mark(folder):
    for offset in (7, 70, 2**62):
        (folder / f"next.{offset:020}").touch()
        looked = Looks([os.fsencode(folder)]).take(os.fsencode(folder))
        assert looked[3] == recovery.list_segments(str(folder)).mark == offset
    assert next_path(str(folder), 7) == str(folder / f"next.{7:020}")


def test_without_a_place_for_the_mark_nothing_is_removed(folder, monkeypatch):
    """The names of what is empty say it then."""
    empty(folder, 40)
    log = Silent()
    (folder / f"next.{40 + JUMP:020}").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(recovery, "next_of", lambda name: 0)        # or the folder's name would do
        found = recovery.mend_folder(str(folder), True, log)
    assert found.resume_at == 40 + JUMP
    assert (folder / f"{40:020}.dat").exists()
    assert any("where its numbering continues" in line for line in log.lines)


@pytest.mark.parametrize("first", [2**61 + 1, 2**62 - 100, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 10**20 - 1])
@pytest.mark.parametrize("size", [0, 5000])
@pytest.mark.parametrize("power_failed", [False, True])
def test_names_that_no_log_comes_to(folder, first, size, power_failed):
    """Files of these names stay as they are, and are reported."""
    strays = [folder / f"{first:020}.dat", folder / f"{first:020}.idx"]
    for stray in strays:
        stray.write_bytes(b"x" * size)
    log = Silent()
    found = recovery.open_folder(str(folder), power_failed, log, Looks([os.fsencode(folder)]))
    assert (found.next, found.resume_at) == (60, 40 + JUMP if power_failed else 60)
    assert [line.split()[1] for line in log.lines if "is not a segment of this log" in line] == [
        stray.name for stray in strays]
    assert [stray.read_bytes() for stray in strays] == 2 * [b"x" * size]
    assert read_folder(str(folder)).strays == [stray.name for stray in strays]
    assert read_folder(str(folder)).next == 60
