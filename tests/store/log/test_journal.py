"""Journals and snapshots: what they say, also torn, damaged and compacted."""

import copy
import errno
import os
import shutil
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqc.store.disk import syscalls
from nsqc.store.log.compact import compact_folder
from nsqc.store.log.progress import read_progress
from tests.store.log.journals import (
    ADVANCE,
    DROP,
    FIN,
    NAME,
    OUT,
    REQ,
    RESET,
    SKIP,
    ChannelModel,
    Model,
    apply,
    as_described,
    described,
    encode,
    frame,
    section,
    write_journal,
)

DUE = 1_800_000_000_000_000_000


@st.composite
def histories(draw, most_frames: int = 12) -> list[list[tuple[int, list]]]:
    """Frames of (number, operations), as a daemon could write them; a seek back is written twice."""
    model: Model = {}
    frames: list[list[tuple[int, list]]] = []

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
            ops = [(RESET, draw(st.integers(0, 60)))]
            write((number, ops))
            write((number, ops))
        else:
            sections = []
            for number in draw(st.lists(st.sampled_from(sorted(model)), min_size=1, max_size=3, unique=True)):
                sections.append((number, draw(work(copy.deepcopy(model[number])))))
            write(*sections)
    return frames


@st.composite
def work(draw, channel: ChannelModel) -> list:
    """What one iteration does with a channel."""
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


def encoded(frames: list[list[tuple[int, list]]]) -> list[bytes]:
    """Frames as bytes; their bases differ."""
    return [frame(*(section(number, ops, 7 * at) for number, ops in sections)) for at, sections in enumerate(frames)]


def model_of(frames: list[list[tuple[int, list]]]) -> Model:
    """What they mean."""
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
    write_journal(folder, 1, *encoded(frames))
    progress = read_progress(str(folder))
    assert as_described(progress) == described(model_of(frames))
    assert (progress.damaged, progress.torn_bytes, progress.missing) == (0, 0, 0)


@given(histories(), st.lists(st.integers(0, 12), min_size=1, max_size=3), st.lists(st.booleans(), min_size=3, max_size=3))
def test_journals_and_snapshots_say_the_same_as_one_journal(folders, frames, cuts, compacts):
    folder, begin = folders(), 0
    data = encoded(frames)
    for number, cut in enumerate([*sorted(cuts), len(data)], 1):
        write_journal(folder, number, *data[begin:cut])
        begin = max(begin, cut)
        if number > 1 and compacts[number - 2]:
            compact_folder(str(folder), number)
            assert sorted(os.listdir(folder)) == [f"cursors.{number:06}.journal", f"cursors.{number:06}.snapshot"]
    progress = read_progress(str(folder))
    assert as_described(progress) == described(model_of(frames))
    assert (progress.damaged, progress.missing) == (0, 0)


def lost(intact: Model, read: dict[int, tuple]) -> list[tuple[int, set[int]]]:
    """Messages that are unfinished in one, and in the other neither that nor ahead of the cursor.

    A channel without a name is one that nobody knows: its messages all come again.
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
    folder, data = folders(), encoded(frames)
    path = write_journal(folder, 1, *data)
    whole, ends = path.read_bytes(), [16]
    for part in data:
        ends.append(ends[-1] + len(part))
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        frames_left = sum(end <= size for end in ends) - 1
        progress = read_progress(str(folder))
        assert as_described(progress) == described(model_of(frames[:max(frames_left, 0)]))
        last = ends[frames_left] if frames_left >= 0 else 0
        assert (progress.torn_bytes, progress.damaged) == (size - last, 0)


@settings(max_examples=12, deadline=None)
@given(histories(8), st.integers(0, 7))
def test_a_flipped_bit_loses_no_message(folders, frames, bit):
    folder, model = folders(), model_of(frames)
    path = write_journal(folder, 1, *encoded(frames))
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1:])
        progress = read_progress(str(folder))
        assert progress.damaged or progress.torn_bytes
        assert lost(model, as_described(progress)) == []


@settings(max_examples=12, deadline=None)
@given(histories(8), st.integers(0, 7))
def test_a_flipped_bit_in_a_snapshot_loses_no_message(folders, frames, bit):
    folder, model = folders(), model_of(frames)
    write_journal(folder, 1, *encoded(frames))
    compact_folder(str(folder), 2)
    path = folder / "cursors.000002.snapshot"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1:])
        progress = read_progress(str(folder))
        assert progress.damaged and progress.missing == 1
        assert lost(model, as_described(progress)) == []


def journal(folder, number: int, *sections: bytes):
    """A journal with one frame for each section."""
    return write_journal(folder, number, *map(frame, sections))


def only(folder) -> tuple:
    """The one channel."""
    progress = read_progress(str(folder))
    assert (len(progress.channels), progress.damaged, progress.missing) == (1, 0, 0)
    return as_described(progress)[progress.channels[0].number]


NEW = [(RESET, 0), (NAME, "c")]


def test_an_empty_folder_and_none(tmp_path):
    progress = read_progress(str(tmp_path))
    assert (progress.channels, progress.topic_cursor, progress.files) == ([], None, [])
    with pytest.raises(FileNotFoundError):
        read_progress(str(tmp_path / "none"))


def test_the_topic_has_a_cursor(tmp_path):
    journal(tmp_path, 1, section(0, [(ADVANCE, 7)]), section(0, [(RESET, 2**40)]))
    assert read_progress(str(tmp_path)).topic_cursor == 2**40
    compact_folder(str(tmp_path), 2)
    journal(tmp_path, 2)
    assert read_progress(str(tmp_path)).topic_cursor == 2**40


def test_finished_before_the_cursor_has_come_there(tmp_path):
    """As after the loss of a frame; and operations of one loop iteration may come in any order."""
    journal(tmp_path, 1, section(1, [*NEW, (FIN, 3, 2), (ADVANCE, 10)]))
    assert only(tmp_path) == ("c", 10, {0, 1, 2, 5, 6, 7, 8, 9}, set(), {})


def test_requeued_before_the_cursor_has_come_there(tmp_path):
    journal(tmp_path, 1, section(1, [*NEW, (REQ, 3, 2, DUE)]))
    assert only(tmp_path) == ("c", 0, set(), {3}, {3: (2, DUE)})
    journal(tmp_path, 2, section(1, [(ADVANCE, 5)]))
    assert only(tmp_path) == ("c", 5, {0, 1, 2, 4}, set(), {3: (2, DUE)})
    journal(tmp_path, 3, section(1, [(FIN, 0, 5)]))
    assert only(tmp_path) == ("c", 5, set(), set(), {})


def test_what_waits_is_not_out_a_second_time(tmp_path):
    journal(tmp_path, 1, section(1, [*NEW, (ADVANCE, 9), (FIN, 0, 9), (REQ, 4, 1, 0), (OUT, 2, 20)]))
    assert only(tmp_path) == ("c", 9, {2, 3, 5, 6, 7, 8}, set(), {4: (1, 0)})


def test_attempts_and_numbers_as_large_as_they_get(tmp_path):
    far = 2**62
    journal(tmp_path, 1, section(2**31, [(NAME, "x" * 64), (RESET, far), (ADVANCE, far + 2), (REQ, far, 10**9, -1)]))
    assert only(tmp_path) == ("x" * 64, far + 2, {far + 1}, set(), {far: (65535, -1)})


def test_a_name_has_one_channel(tmp_path):
    journal(tmp_path, 1, section(1, [(NAME, "a"), (RESET, 5)]), section(2, [(NAME, "b"), (RESET, 6)]),
            section(3, [(NAME, "a"), (RESET, 7)]))
    named = read_progress(str(tmp_path)).named
    assert {name: (channel.number, channel.cursor) for name, channel in named.items()} == {"a": (3, 7), "b": (2, 6)}


def test_many_channels(tmp_path):
    sections = [section(number, [(NAME, f"channel{number}"), (RESET, number), (ADVANCE, number + 3), (FIN, number, 1)])
                for number in range(1, 3001)]
    sections += [section(number, [(DROP,)]) for number in range(1, 3001, 3)]
    write_journal(tmp_path, 1, frame(*sections))
    compact_folder(str(tmp_path), 2)
    named = read_progress(str(tmp_path)).named
    assert len(named) == 2000
    assert all((channel.cursor, channel.out) == (number + 3, [(number + 1, number + 3)])
               for number in range(1, 3001) if number % 3 != 1 for channel in [named[f"channel{number}"]])


@pytest.mark.parametrize("bad", [
    b"\x63", b"\x01", b"\x01\x80", b"\x01" + b"\xff" * 11, b"\x02\x00", b"\x02\x00\x00", b"\x02\x09\x05", b"\x03\x00\x01\x00",
    b"\x05\x00", b"\x05\x05abc", b"\x05\x41" + b"x" * 65, b"\x0f", b"\x02\x00" + b"\xff" * 9 + b"\x01",
])
def test_operations_that_make_no_sense_end_their_section(tmp_path, bad):
    data = encode([*NEW, (ADVANCE, 4)])
    odd = struct.pack(">IIq", 1, len(data + bad), 0) + data + bad
    write_journal(tmp_path, 1, frame(odd, section(2, [(NAME, "d"), (RESET, 1)])))
    progress = read_progress(str(tmp_path))
    assert (progress.damaged, progress.files[0].damaged) == (1, True)
    assert as_described(progress) == {1: ("c", 4, {0, 1, 2, 3}, set(), {}), 2: ("d", 1, set(), set(), {})}


def test_a_cursor_that_falls_means_that_a_seek_is_lost(tmp_path):
    journal(tmp_path, 1, section(1, [*NEW, (ADVANCE, 90), (FIN, 0, 90)]), section(1, [(ADVANCE, 5)]))
    progress = read_progress(str(tmp_path))
    assert as_described(progress) == {1: ("c", 5, {0, 1, 2, 3, 4}, set(), {})}
    assert progress.damaged == 1


def test_frames_behind_damage_are_found(tmp_path):
    """A frame in the middle with another length: the next one is searched, also behind a megabyte."""
    frames = [frame(section(1, NEW)), frame(section(1, [(ADVANCE, 50), *((FIN, 2 * at, 1) for at in range(25))])),
              frame(section(1, [(FIN, 7, 1)]))]
    for garbage in (b"\0\0\0\x20" + bytes(30), bytes(10**6), os.urandom(10**6), frames[1][:60], b"\xff" * 300):
        write_journal(tmp_path, 1, frames[0], garbage, frames[2])
        progress = read_progress(str(tmp_path))
        assert (progress.damaged, progress.damaged_bytes, progress.torn_bytes) == (1, len(garbage), 0)
        assert progress.channels[0].skips == [(7, 8)]


def test_zeros_at_the_end_are_a_torn_frame(tmp_path):
    path = journal(tmp_path, 1, section(1, NEW))
    with path.open("ab") as file:
        file.write(bytes(5000))
    progress = read_progress(str(tmp_path))
    assert (progress.damaged, progress.torn_bytes) == (0, 5000)


def test_missing_journals_are_counted(tmp_path):
    journal(tmp_path, 2, section(1, NEW))
    journal(tmp_path, 5, section(1, [(ADVANCE, 2)]))
    assert read_progress(str(tmp_path)).missing == 3


def test_a_damaged_head_hides_no_frame(tmp_path):
    path = journal(tmp_path, 1, section(1, [*NEW, (ADVANCE, 2)]))
    data = path.read_bytes()
    path.write_bytes(b"X" + data[1:])
    progress = read_progress(str(tmp_path))
    assert (progress.damaged, progress.channels[0].cursor) == (1, 2)


# ---------------------------------------------------------------------- compaction


@pytest.fixture
def three(tmp_path):
    """Three journals with something of everything, and what they say."""
    journal(tmp_path, 1, section(1, [*NEW, (ADVANCE, 300), (FIN, 0, 100), (FIN, 102, 8), (REQ, 105, 3, DUE)]))
    journal(tmp_path, 2, section(1, [(FIN, 200, 1), (SKIP, 310, 5), (REQ, 320, 0, DUE)]), section(0, [(ADVANCE, 9)]))
    journal(tmp_path, 3, section(1, [(FIN, 250, 2)]), section(2, [(NAME, "d"), (RESET, 4)]))
    return tmp_path, read_progress(str(tmp_path))


def same(progress, other) -> bool:
    """Whether two say the same, and neither anything of damage."""
    return (as_described(progress) == as_described(other) and progress.topic_cursor == other.topic_cursor
            and progress[4:] == other[4:] == (0, 0, 0, 0))


def test_a_kill_at_any_step_of_compaction_changes_nothing(three):
    folder, before = three
    whole = folder / "whole"
    shutil.copytree(folder, whole)
    compact_folder(str(whole), 3)
    snapshot = (whole / "cursors.000003.snapshot").read_bytes()
    journals = [folder / f"cursors.{number:06}.journal" for number in (1, 2)]
    temporary = folder / "cursors.000003.snapshot.tmp"
    for size in (0, 10, len(snapshot) // 2, len(snapshot)):
        temporary.write_bytes(snapshot[:size])
        assert same(read_progress(str(folder)), before)
    temporary.rename(folder / "cursors.000003.snapshot")
    assert same(read_progress(str(folder)), before)
    for path in journals:
        path.unlink()
        assert same(read_progress(str(folder)), before)
    shutil.rmtree(whole)
    journal(folder, 4)
    (folder / "cursors.000002.snapshot.tmp").write_bytes(b"")
    compact_folder(str(folder), 4)
    assert sorted(os.listdir(folder)) == ["cursors.000004.journal", "cursors.000004.snapshot"]
    assert same(read_progress(str(folder)), before)


@pytest.mark.parametrize("call, skip", [("write", 0), ("write", 1), ("sync", 0), ("rename", 0), ("sync", 1), ("read", 0)])
def test_a_compaction_that_fails_leaves_what_there_was(three, call, skip):
    folder, before = three
    names = sorted(os.listdir(folder))
    syscalls.fail(call, errno.ENOSPC, skip)
    try:
        with pytest.raises(OSError) as raised:
            compact_folder(str(folder), 3)
    finally:
        syscalls.fail(call, 0, times=0)
    assert raised.value.errno == errno.ENOSPC
    assert sorted(os.listdir(folder)) == names
    assert same(read_progress(str(folder)), before)


def test_damaged_journals_are_kept(three):
    folder, _ = three
    path = folder / "cursors.000002.journal"
    path.write_bytes(path.read_bytes().replace(b"NSQCJNL1", b"NSQCJNL2"))
    compact_folder(str(folder), 3)
    assert sorted(os.listdir(folder)) == ["cursors.000002.journal.bad", "cursors.000003.journal", "cursors.000003.snapshot"]


def test_a_damaged_snapshot_is_not_used_while_there_are_its_journals(three):
    folder, before = three
    journals = {path: path.read_bytes() for path in folder.iterdir()}
    compact_folder(str(folder), 3)
    for path, data in journals.items():
        path.write_bytes(data)
    path = folder / "cursors.000003.snapshot"
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    progress = read_progress(str(folder))
    assert as_described(progress) == as_described(before)
    assert progress.damaged == 1
    assert [file.name for file in progress.files if file.damaged] == [path.name]
    # The end is part of a snapshot.
    path.write_bytes(data[:-26])
    assert as_described(read_progress(str(folder))) == as_described(before)


def test_a_large_state_has_many_frames_and_survives_damage_in_each(tmp_path):
    """25,000 single unfinished messages, and as many that wait, in frames of their own."""
    ops = [*NEW, (ADVANCE, 100_000)]
    ops += [(FIN, at, 1) for at in range(0, 100_000, 2)]
    ops += [(REQ, at, 1, DUE) for at in range(1, 100_000, 4)]
    journal(tmp_path, 1, section(1, ops))
    before = as_described(read_progress(str(tmp_path)))
    compact_folder(str(tmp_path), 2)
    journal(tmp_path, 2)
    assert as_described(read_progress(str(tmp_path))) == before
    path = tmp_path / "cursors.000002.snapshot"
    data = path.read_bytes()
    pending = before[1][2] | set(before[1][4])
    for at in range(100, len(data), 65_536 // 2):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1:])
        progress = read_progress(str(tmp_path))
        _, cursor, out, _, waiting = as_described(progress).get(1, ("", 0, set(), set(), {}))
        assert progress.damaged and {offset for offset in pending if offset < cursor} <= out | set(waiting)
