"""Journals: their meaning, also when torn, damaged and compacted."""

import copy
import errno
import os
import random
import shutil
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqc.store.disk import fileio
from nsqc.store.log.manager import read_progress
from tests.compiled.logs import compact_folder
from tests.store.log.journals import (
    ADVANCE,
    DROP,
    FIN,
    HEAD_BYTES,
    MORE,
    NAME,
    REQ,
    RESET,
    SKIP,
    ChannelModel,
    Frame,
    Model,
    apply,
    as_described,
    described,
    framed,
    journal_path,
    operations,
    write_journal,
)
from tests.store.log.segments import write_log, write_manifest

DUE = 1_800_000_000_000_000_000


@st.composite
def histories(draw, most_frames: int = 12) -> list[Frame]:
    """Frames as a daemon could write them."""
    model: Model = {}
    frames: list[Frame] = []

    def write(*sections: tuple[int, list]) -> None:
        for number, ops in sections:
            apply(model, number, ops)
        frames.append(list(sections))

    following = 1
    for _ in range(draw(st.integers(1, most_frames))):
        kind = draw(st.sampled_from(["create", "work", "work", "work", "work", "work", "seek", "drop"]))
        if kind == "create" or not model:
            start = draw(st.integers(0, 50))
            write((following, [(RESET, start), (NAME, f"channel-{draw(st.integers(0, 3))}")]))
            following += 1
            continue
        number = draw(st.sampled_from(sorted(model)))
        if kind == "drop":
            write((number, [(DROP,)]))
        elif kind == "seek":
            write((number, [(RESET, draw(st.integers(0, 60)))]))
        else:
            sections = []
            for number in draw(st.lists(st.sampled_from(sorted(model)), min_size=1, max_size=3, unique=True)):
                sections.append((number, draw(work(copy.deepcopy(model[number])))))
            write(*sections)
    return frames


@st.composite
def work(draw, channel: ChannelModel) -> list:
    """The operations of one iteration on a channel."""
    ops = []
    for _ in range(draw(st.integers(1, 5))):
        pending = sorted(channel.pending())
        kind = draw(st.sampled_from(["deliver", "finish", "finish", "requeue", "skip"]))
        if kind == "deliver" or not pending:
            op = (ADVANCE, channel.cursor + draw(st.integers(1, 30)))
        elif kind == "finish":
            first = draw(st.sampled_from(pending))
            count = 1
            while first + count in pending and count < 5:
                count += 1
            op = (FIN, first, draw(st.integers(1, count)))
        elif kind == "requeue":
            op = (REQ, draw(st.sampled_from(pending)), draw(st.integers(1, 9)), draw(st.sampled_from([0, DUE])))
        else:
            op = (SKIP, channel.cursor + draw(st.integers(0, 9)), draw(st.integers(1, 9)))
        channel.apply(op)
        ops.append(op)
    return ops


def seeks(frames: list[Frame]) -> tuple[int, ...]:
    """The frames that a daemon writes twice."""
    return tuple(index for index, frame in enumerate(frames)
                 if any(op[0] in (RESET, NAME) for _, ops in frame for op in ops))


def model_of(frames: list[Frame]) -> Model:
    """Their meaning."""
    model: Model = {}
    for sections in frames:
        for number, ops in sections:
            apply(model, number, ops)
    return model


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Makes an empty folder, the same one again."""
    folder = tmp_path_factory.mktemp("journals")

    def empty():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder
    return empty


@given(histories())
def test_a_journal_says_what_was_done(folders, frames):
    folder = folders()
    write_journal(folder, *frames, twice=seeks(frames))
    progress = read_progress(str(folder))
    assert as_described(progress) == described(model_of(frames))
    assert (progress.damaged, progress.torn_bytes) == (0, 0)


@given(histories(), st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), min_size=1, max_size=3))
def test_compacted_files_say_the_same(folders, frames, compactions):
    """Also if a kill ends a compaction after any of its steps. The journal continues in another file, or in the newest."""
    folder, begin, file = folders(), 0, 1
    for cut, steps in [*sorted(compactions), (len(frames), 0)]:
        write_journal(folder, *frames[begin:cut], file=file, first=begin + 1)
        begin = max(begin, cut)
        if steps and begin:
            before = as_described(read_progress(str(folder)))
            compact_folder(str(folder), steps)
            progress = read_progress(str(folder))
            assert (as_described(progress), progress.damaged) == (before, 0)
            file = max(int(name.rpartition(".")[2]) for name in os.listdir(folder) if not name.endswith("tmp"))
            if steps == 3:
                assert os.listdir(folder) == [f"cursors.{file:06}"]
            file += begin % 2 * 2
    progress = read_progress(str(folder))
    assert as_described(progress) == described(model_of(frames))
    assert (progress.damaged, progress.torn_bytes) == (0, 0)


def lost(intact: Model, read: dict[int, tuple]) -> list[tuple[int, set[int]]]:
    """Messages that are unfinished in one, and in the other neither that nor past the cursor.

    A channel without a name is an unknown one: its messages all come again.
    """
    found = []
    for number, channel in intact.items():
        name, cursor, out, skips, waiting = read.get(number, ("", 0, set(), set(), {}))
        if name == channel.name:
            ahead = set(range(channel.cursor, max(cursor, channel.cursor + 70))) - channel.skips
            missing = {offset for offset in channel.pending() | ahead
                       if offset not in out and offset not in waiting and (offset < cursor or offset in skips)}
            if missing:
                found.append((number, missing))
    return found


@settings(max_examples=15)
@given(histories(8))
def test_a_journal_torn_at_any_byte_says_what_is_whole(folders, frames):
    folder = folders()
    ends = write_journal(folder, *frames)
    path = journal_path(folder)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        kept = sum(end <= size for end in ends)
        progress = read_progress(str(folder))
        assert as_described(progress) == described(model_of(frames[:kept]))
        assert (progress.torn_bytes, progress.damaged) == (size - ([0, *ends][kept]), 0)


def flipped(path, bit: int):
    """Flips this bit of each byte of a file, one after the other."""
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1:])
        yield at
    path.write_bytes(whole)


@settings(max_examples=12, deadline=None)
@given(histories(8), st.integers(0, 7))
def test_a_flipped_bit_loses_no_message(folders, frames, bit):
    """It is reported, unless it is in one of two copies of a frame, or between two frames."""
    folder, model = folders(), model_of(frames)
    write_journal(folder, *frames, twice=seeks(frames))
    for _ in flipped(journal_path(folder), bit):
        progress = read_progress(str(folder))
        assert progress.damaged or as_described(progress) == described(model)
        assert lost(model, as_described(progress)) == []


@settings(max_examples=12, deadline=None)
@given(histories(8), st.integers(0, 7))
def test_a_flipped_bit_in_a_state_loses_no_message(folders, frames, bit):
    folder, model = folders(), model_of(frames)
    write_journal(folder, *frames)
    compact_folder(str(folder))
    path = journal_path(folder, 2)
    for _ in flipped(path, bit):
        progress = read_progress(str(folder))
        assert progress.damaged or as_described(progress) == described(model)
        assert lost(model, as_described(progress)) == []


@settings(max_examples=6, deadline=None)
@given(histories(8), histories(4), st.integers(0, 7))
def test_a_flipped_bit_in_one_of_two_files_costs_nothing(folders, frames, more, bit):
    """After a compaction both files mean the same, until the older one is removed."""
    folder = folders()
    write_journal(folder, *frames)
    compact_folder(str(folder), 2)
    before = as_described(read_progress(str(folder)))
    for file in (1, 2):
        for _ in flipped(journal_path(folder, file), bit):
            assert as_described(read_progress(str(folder))) == before


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2**16), st.binary(min_size=1, max_size=40)), min_size=1, max_size=5),
       st.binary(max_size=300))
def test_whatever_is_written_into_a_journal_is_read(folders, changes, ops):
    """Any bytes in any place, and frames with sound checksums and any operations."""
    folder = folders()
    write_journal(folder, [(1, NEW)], [(1, [(ADVANCE, 9), (REQ, 3, 1, DUE)])])
    path = journal_path(folder)
    data = bytearray(path.read_bytes())
    data += framed(ops, 1, len(data), 3, 0)
    for at, change in changes:
        data[at % len(data):at % len(data) + len(change)] = change
    path.write_bytes(data)
    read_progress(str(folder))
    compact_folder(str(folder))
    assert not read_progress(str(folder)).damaged


def only(folder) -> tuple:
    """The one channel."""
    progress = read_progress(str(folder))
    assert (len(progress.channels), progress.damaged) == (1, 0)
    return as_described(progress)[progress.channels[0].number]


NEW = [(RESET, 0), (NAME, "c")]


def test_an_empty_folder_and_none(tmp_path):
    progress = read_progress(str(tmp_path))
    assert (progress.channels, progress.topic_cursor, progress.files) == ([], None, [])
    with pytest.raises(FileNotFoundError):
        read_progress(str(tmp_path / "none"))


def test_the_topic_has_a_cursor(tmp_path):
    write_journal(tmp_path, [(0, [(ADVANCE, 7)])], [(0, [(RESET, 2**40)])])
    assert read_progress(str(tmp_path)).topic_cursor == 2**40
    compact_folder(str(tmp_path))
    assert read_progress(str(tmp_path)).topic_cursor == 2**40


def test_finished_before_the_cursor_has_come_there(tmp_path):
    """As after the loss of a frame: the cursor was there."""
    write_journal(tmp_path, [(1, [*NEW, (FIN, 3, 2), (ADVANCE, 10)])])
    assert only(tmp_path) == ("c", 10, {0, 1, 2, 5, 6, 7, 8, 9}, set(), {})


def test_requeued_before_the_cursor_has_come_there(tmp_path):
    write_journal(tmp_path, [(1, [*NEW, (REQ, 3, 2, DUE)])])
    assert only(tmp_path) == ("c", 4, {0, 1, 2}, set(), {3: (2, DUE)})
    write_journal(tmp_path, [(1, [(ADVANCE, 5)])])
    assert only(tmp_path) == ("c", 5, {0, 1, 2, 4}, set(), {3: (2, DUE)})
    write_journal(tmp_path, [(1, [(FIN, 0, 5)])])
    assert only(tmp_path) == ("c", 5, set(), set(), {})


def test_attempts_and_numbers_as_large_as_they_get(tmp_path):
    far = 2**62 - 3
    write_manifest(tmp_path, write_log(tmp_path, [(0, 1)])[0], reserved=2**62)
    write_journal(tmp_path, [(2**31 - 1, [(NAME, "x" * 64), (RESET, far), (ADVANCE, far + 2), (REQ, far, 10**9, -1)])])
    assert only(tmp_path) == ("x" * 64, far + 2, {far + 1}, set(), {far: (65535, -1)})


def test_a_name_has_one_channel(tmp_path):
    write_journal(tmp_path, [(1, [(NAME, "a"), (RESET, 5)]), (2, [(NAME, "b"), (RESET, 6)]),
                             (3, [(NAME, "a"), (RESET, 7)])])
    named = read_progress(str(tmp_path)).named
    assert {name: (channel.number, channel.cursor) for name, channel in named.items()} == {"a": (3, 7), "b": (2, 6)}


def test_many_channels(tmp_path):
    frame = [(number, [(NAME, f"channel{number}"), (RESET, number), (ADVANCE, number + 3), (FIN, number, 1)])
             for number in range(1, 3001)]
    write_journal(tmp_path, frame + [(number, [(DROP,)]) for number in range(1, 3001, 3)])
    compact_folder(str(tmp_path))
    named = read_progress(str(tmp_path)).named
    assert len(named) == 2000
    assert all((channel.cursor, channel.out) == (number + 3, [(number + 1, number + 3)])
               for number in range(1, 3001) if number % 3 != 1 for channel in [named[f"channel{number}"]])


@pytest.mark.parametrize("bad", [
    b"\x00", b"\x09", b"\xff", b"\x01", struct.pack(">BBHIqq", 8, 0, 0, 1, 0, 0), struct.pack(">BBHIqq", 1, 0, 0, 1, -1, 0),
    struct.pack(">BBHIqq", 2, 0, 0, 1, 5, 5), struct.pack(">BBHIqq", 3, 0, 0, 1, 2**63 - 1, 0),
    struct.pack(">BBHIqq", 5, 0, 0, 1, 0, 0) + bytes(72), struct.pack(">BBHIqq", 5, 65, 0, 1, 0, 0) + bytes(72),
    struct.pack(">BBHIqq", 5, 4, 0, 1, 0, 0) + b"name",
])
def test_operations_that_make_no_sense_end_their_frame(tmp_path, bad):
    ops = operations([(1, [*NEW, (ADVANCE, 4)])]) + bad
    journal_path(tmp_path).write_bytes(framed(ops, 1, 0, 1, 0))
    write_journal(tmp_path, [(2, [(NAME, "d"), (RESET, 1)])])
    progress = read_progress(str(tmp_path))
    assert (progress.damaged, progress.files) == (1, [("cursors.000001", True)])
    assert as_described(progress) == {1: ("c", 4, {0, 1, 2, 3}, set(), {}), 2: ("d", 1, set(), set(), {})}


def test_a_cursor_that_falls_means_that_a_seek_is_lost(tmp_path):
    write_journal(tmp_path, [(1, [*NEW, (ADVANCE, 90), (FIN, 0, 90)])], [(1, [(ADVANCE, 5)])])
    progress = read_progress(str(tmp_path))
    assert as_described(progress) == {1: ("c", 5, {0, 1, 2, 3, 4}, set(), {})}
    assert progress.damaged == 1


@pytest.mark.parametrize("length", [8, 64, 72, 10**6])
def test_frames_behind_damage_are_found(tmp_path, length):
    """Also after a megabyte. A missing number means a lost frame; without one, none is lost."""
    for garbage in (bytes(length), random.Random(1).randbytes(length), b"\xff" * length):
        for missing in (0, 1):
            journal_path(tmp_path).unlink(missing_ok=True)
            write_journal(tmp_path, [(1, NEW)])
            data = journal_path(tmp_path).read_bytes() + garbage
            data += framed(operations([(1, [(FIN, 7, 1)])]), 1, len(data), 2 + missing, 0)
            journal_path(tmp_path).write_bytes(data)
            progress = read_progress(str(tmp_path))
            assert (progress.damaged, progress.torn_bytes, progress.channels[0].cursor) == (missing, 0, 8)


def test_zeros_at_the_end_are_a_torn_frame(tmp_path):
    write_journal(tmp_path, [(1, NEW)])
    with journal_path(tmp_path).open("ab") as file:
        file.write(bytes(5000))
    progress = read_progress(str(tmp_path))
    assert (progress.damaged, progress.torn_bytes) == (0, 5000)


def test_a_file_under_another_number_does_not_count(tmp_path):
    write_journal(tmp_path, [(1, NEW)])
    journal_path(tmp_path).rename(journal_path(tmp_path, 2))
    progress = read_progress(str(tmp_path))
    assert (progress.channels, progress.files) == ([], [("cursors.000002", True)])


# ---------------------------------------------------------------------- compaction


@pytest.fixture
def several(tmp_path):
    """A journal with every kind of operation, and its meaning."""
    write_journal(tmp_path, [(1, [*NEW, (ADVANCE, 300), (FIN, 0, 100), (FIN, 102, 8), (REQ, 105, 3, DUE)])],
                  [(1, [(FIN, 200, 1), (SKIP, 310, 5)]), (0, [(ADVANCE, 9)])],
                  [(1, [(FIN, 250, 2)]), (2, [(NAME, "d"), (RESET, 4)])])
    return tmp_path, read_progress(str(tmp_path))


def same(progress, other) -> bool:
    """Whether two have the same meaning, and neither is damaged."""
    return (as_described(progress) == as_described(other) and progress.topic_cursor == other.topic_cursor
            and progress.damaged == other.damaged == 0)


def test_a_kill_at_any_step_of_compaction_changes_nothing(several):
    folder, before = several
    temporary = folder / "cursors.tmp"
    compact_folder(str(folder), 1)
    made = temporary.read_bytes()
    for size in range(0, len(made) + 1, 7):
        temporary.write_bytes(made[:size])
        assert same(read_progress(str(folder)), before)
    compact_folder(str(folder), 2)
    assert sorted(os.listdir(folder)) == ["cursors.000001", "cursors.000002"]
    assert same(read_progress(str(folder)), before)
    journal_path(folder).unlink()
    assert same(read_progress(str(folder)), before)
    compact_folder(str(folder), 3)
    assert os.listdir(folder) == ["cursors.000003"]
    assert same(read_progress(str(folder)), before)


def test_a_power_failure_takes_no_more_than_the_older_file_lacks(several):
    """The end of the new file is not on disk, but its source is."""
    folder, _ = several
    compact_folder(str(folder), 2)
    new = journal_path(folder, 2)
    state = new.read_bytes()
    write_journal(folder, [(1, [(FIN, 260, 1)])])
    before = read_progress(str(folder))
    for size in range(0, len(state) + 1, 5):
        new.write_bytes(state[:size])
        assert as_described(read_progress(str(folder))) == as_described(before)


@pytest.mark.parametrize("call, skip", [("write", 0), ("sync", 0), ("rename", 0), ("read", 0)])
def test_a_compaction_that_fails_leaves_what_there_was(several, call, skip):
    folder, before = several
    names = sorted(os.listdir(folder))
    fileio.fail(call, errno.ENOSPC, skip)
    try:
        with pytest.raises(OSError) as raised:
            compact_folder(str(folder))
    finally:
        fileio.fail(call, 0, times=0)
    assert raised.value.errno == errno.ENOSPC
    assert sorted(os.listdir(folder)) == names
    assert same(read_progress(str(folder)), before)


def test_a_compaction_that_cannot_be_synced_keeps_both(several):
    folder, before = several
    fileio.fail("sync", errno.EIO, 1)
    try:
        with pytest.raises(OSError):
            compact_folder(str(folder))
    finally:
        fileio.fail("sync", 0, times=0)
    assert sorted(os.listdir(folder)) == ["cursors.000001", "cursors.000002"]
    assert same(read_progress(str(folder)), before)


def test_damaged_files_are_kept(several):
    folder, _ = several
    path = journal_path(folder)
    data = bytearray(path.read_bytes())
    data[HEAD_BYTES + 10] ^= 1
    path.write_bytes(data)
    compact_folder(str(folder))
    assert sorted(os.listdir(folder)) == ["cursors.000001.bad", "cursors.000002"]
    assert not read_progress(str(folder)).damaged


def test_a_large_state_has_many_frames_and_survives_damage_in_each(tmp_path):
    """12,500 single unfinished messages and 12,500 waiting ones, in separate frames."""
    ops = [*NEW, (ADVANCE, 50_000)]
    ops += [(FIN, at, 1) for at in range(0, 50_000, 2)]
    ops += [(REQ, at, 1, DUE) for at in range(1, 50_000, 4)]
    write_journal(tmp_path, [(1, ops)])
    before = as_described(read_progress(str(tmp_path)))
    compact_folder(str(tmp_path))
    assert as_described(read_progress(str(tmp_path))) == before
    path = journal_path(tmp_path, 2)
    data = path.read_bytes()
    flags = [data[at + 17] & MORE for at in range(0, len(data), 8) if data[at:at + 4] == b"nqFR"]
    assert len(flags) > 5 and flags == [MORE] * (len(flags) - 1) + [0]
    pending = before[1][2] | set(before[1][4])
    for at in range(100, len(data), 65_536 // 2):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1:])
        progress = read_progress(str(tmp_path))
        _, cursor, out, _, waiting = as_described(progress).get(1, ("", 0, set(), set(), {}))
        assert progress.damaged or as_described(progress) == before
        assert {offset for offset in pending if offset < cursor} <= out | set(waiting)
