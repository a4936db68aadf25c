"""Segments of which a part did not reach the disk: what the first start shows, each later one shows, too."""

import os
import random
import shutil
import struct

import pytest

from nsqc.store.log import recovery, spans
from nsqc.store.log.check import check_folder
from nsqc.store.log.exportplan import Sources
from nsqc.store.log.files import read_folder
from nsqc.store.log.format import checksum
from nsqc.store.log.gaps import missing_ranges
from nsqc.store.log.look import Looks
from nsqc.store.log.repair import Repair
from nsqc.store.log.summary import read_log
from tests.store.log.segments import record, write_segment
from tests.store.log.test_look import Silent

FIRST, BATCH, END, NEXT = 40, 60, 90, 93        # the second segment ends with a batch, and a third one follows
HEAD, ENTRY = 32, 16


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "topic.log"
    write_segment(made, 0, FIRST)
    write_segment(made, FIRST, END - FIRST, more=range(BATCH, END - 1))
    write_segment(made, END, NEXT - END)
    (made / "id.00000000000000ff").touch()
    return made


class Files:
    """The segment that is torn."""

    def __init__(self, folder):
        self.dat, self.idx = folder / f"{FIRST:020}.dat", folder / f"{FIRST:020}.idx"

    def position(self, offset: int) -> int:
        return sum(len(record(number)) for number in range(FIRST, offset))

    def cut_index(self, offset: int) -> None:
        os.truncate(self.idx, HEAD + ENTRY * (offset - FIRST))

    def cut_data(self, offset: int) -> None:
        os.truncate(self.dat, self.position(offset) + 11)

    def blank_index(self, begin: int, end: int) -> None:
        blank(self.idx, HEAD + ENTRY * (begin - FIRST), HEAD + ENTRY * (end - FIRST))

    def blank_data(self, begin: int, end: int) -> None:
        blank(self.dat, self.position(begin) + 11, self.position(end))


def blank(path, begin: int, end: int) -> None:
    data = bytearray(path.read_bytes())
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)


def start(folder, power_failed=False, syncs=False):
    log = Silent()
    return recovery.open_folder(str(folder), power_failed, log, Looks([os.fsencode(folder)]), syncs), log.lines


def readable(folder, bounds) -> tuple[dict[int, bytes], int]:
    """What /topic/read gives: records by offset, and how many were damaged."""
    there, damaged = {}, 0
    for first, end, length in bounds:
        if first == end:
            continue
        data = os.open(folder / f"{first:020}.dat", os.O_RDONLY)
        index = os.open(folder / f"{first:020}.idx", os.O_RDONLY)
        at = first
        while at < end:
            run = spans.sound(data, index, (first, end, length), at, 2**40, 2**40, False)
            damaged += run.damaged
            position = run.start
            for offset in range(run.first, run.next):
                size = 4 + struct.unpack(">i", os.pread(data, 4, position))[0]
                there[offset] = os.pread(data, size, position)
                position += size
            at = max(run.next, at + 1)
        os.close(data)
        os.close(index)
    return there, damaged


def vouched(folder) -> set[int]:
    """Offsets whose entry and record are on the disk."""
    found = set()
    for path in folder.glob("*.dat"):
        first, data, index = int(path.stem), path.read_bytes(), path.with_suffix(".idx").read_bytes()
        for number in range(max(len(index) - HEAD, 0) // ENTRY):
            entry = index[HEAD + ENTRY * number:HEAD + ENTRY * (number + 1)]
            position, _, crc, check = struct.unpack(">IIII", entry)
            at = position & 2**31 - 1
            if check == checksum(struct.pack(">q", first + number) + entry[:12]) and at + 4 <= len(data):
                size = 4 + struct.unpack_from(">i", data, at)[0]
                if at + size <= len(data) and checksum(data[at:at + size]) == crc:
                    found.add(first + number)
    return found


TEARS = {
    "entries blank at the end": lambda files: files.blank_index(75, END),
    "entries blank to before the last": lambda files: files.blank_index(75, END - 1),
    "entries missing": lambda files: files.cut_index(75),
    "entries of the batch missing": lambda files: files.cut_index(BATCH),
    "half an entry": lambda files: os.truncate(files.idx, HEAD + ENTRY * 30 + 7),
    "records missing": lambda files: files.cut_data(75),
    "records blank at the end": lambda files: files.blank_data(75, END),
    "records and entries blank": lambda files: (files.blank_data(75, END), files.blank_index(70, END)),
    "entries behind records": lambda files: (files.blank_data(75, END), files.cut_index(70)),
    "records behind entries": lambda files: (files.cut_data(70), files.blank_index(75, END)),
    "a hole in the records": lambda files: files.blank_data(63, 70),
    "a hole in the index": lambda files: files.blank_index(63, 70),
    "holes, and no end": lambda files: (files.blank_index(45, 48), files.blank_data(64, 66), files.cut_data(77)),
    "the head, and entries": lambda files: blank(files.idx, 0, HEAD + ENTRY * 3),
    "no index": lambda files: os.truncate(files.idx, 0),
    "a blank index": lambda files: blank(files.idx, 0, HEAD + ENTRY * (END - FIRST)),
    "a blank index in part": lambda files: (blank(files.idx, 0, HEAD + ENTRY * 3), files.cut_index(75)),
    "nothing": lambda files: (os.truncate(files.idx, 0), os.truncate(files.dat, 0)),
}


@pytest.mark.parametrize("last", ["whole", "empty"])
@pytest.mark.parametrize("tear", TEARS)
def test_each_start_shows_the_same(folder, tear, last):
    TEARS[tear](Files(folder))
    if last == "empty":
        for kind in ("dat", "idx"):
            os.truncate(folder / f"{END:020}.{kind}", 0)        # it was begun, so what is before it was acknowledged
    there = vouched(folder)
    found, lines = start(folder, power_failed=True)
    bounds = [segment[:3] for segment in found.segments]
    shown = readable(folder, bounds)
    assert shown[0] == {offset: record(offset) for offset in there}
    gone = missing_ranges(segment[:2] for segment in bounds)
    if last == "whole":
        assert len(there) + shown[1] + sum(end - first for first, end in gone) == NEXT, "a message is not counted"
    assert shown[1] or any("have not reached the disk" in line or "are gone" in line for line in lines)
    assert found.resume_at == END + recovery.JUMP
    for power_failed in (False, False, True, False):
        again, lines = start(folder, power_failed)
        assert [segment[:3] for segment in again.segments] == bounds
        assert readable(folder, bounds) == shown
        assert missing_ranges(segment[:2] for segment in bounds) == gone
        assert any("are gone" in line for line in lines) == bool(gone)
        assert again.resume_at >= found.resume_at


@pytest.mark.parametrize("tear", TEARS)
def test_the_tools_say_the_same(folder, tmp_path, tear):
    TEARS[tear](Files(folder))
    start(folder, power_failed=True)
    shown = readable(folder, [segment[:3] for segment in start(folder)[0].segments])
    files = read_folder(str(folder))
    assert readable(folder, files.bounds) == shown
    assert check_folder(str(folder)).records == len(shown[0])
    sound = {offset for first, end in Sources(read_log(str(folder))).sound for offset in range(first, end)}
    assert sound == shown[0].keys()
    copy = tmp_path / "copy.log"
    shutil.copytree(folder, copy)
    Repair(str(copy), lambda step: None).run()
    assert readable(copy, read_folder(str(copy)).bounds)[0] == shown[0]
    assert readable(copy, [segment[:3] for segment in start(copy)[0].segments])[0] == shown[0]


def lose_sectors(folder, dice, share: float) -> None:
    """Of all segments; each may also be shorter."""
    for path in sorted([*folder.glob("*.dat"), *folder.glob("*.idx")]):
        size = path.stat().st_size
        for at in range(0, size, 512):
            if dice.random() < share:
                blank(path, at, min(at + 512, size))
        if dice.random() < share:
            os.truncate(path, dice.choice([0, 512, size - size % 512]))


@pytest.mark.parametrize("seed", range(40))
def test_any_sectors_may_be_missing(folder, seed):
    dice = random.Random(seed)
    lose_sectors(folder, dice, 0.3)
    there = vouched(folder)
    found, _ = start(folder, power_failed=True)
    bounds = [segment[:3] for segment in found.segments]
    shown = readable(folder, bounds)
    assert shown[0] == {offset: record(offset) for offset in there if offset in shown[0] or offset < END}
    for power_failed in (False, False, True, False):
        again, _ = start(folder, power_failed)
        assert [segment[:3] for segment in again.segments] == bounds
        assert readable(folder, bounds) == shown


@pytest.mark.parametrize("seed", range(40))
def test_where_ok_waits_for_a_sync_a_batch_is_there_as_a_whole_or_not_at_all(tmp_path, seed):
    dice, folder, batches, firsts = random.Random(seed), tmp_path / "topic.log", [], [0]
    for _ in range(3):
        while batches[-1:] == [] or batches[-1][1] < firsts[-1] + 150:
            begin = batches[-1][1] if batches else 0
            batches.append((begin, begin + dice.choice((1, 1, 2, 7, 40))))
        more = {offset for begin, end in batches for offset in range(begin, end - 1)}
        write_segment(folder, firsts[-1], batches[-1][1] - firsts[-1], more=more)
        firsts.append(batches[-1][1])
    (folder / "id.00000000000000ff").touch()
    lose_sectors(folder, dice, 0.1)
    there = vouched(folder)
    entries = {offset for offset in range(firsts[-1]) if has_entry(folder, firsts, offset)}
    found, _ = start(folder, power_failed=True, syncs=True)
    bounds = [segment[:3] for segment in found.segments]
    shown = readable(folder, bounds)
    assert shown[0].keys() <= there
    whole = [batch for batch in batches if set(range(*batch)) <= there]
    assert all(any(begin <= offset < end for begin, end in whole) for offset in shown[0])
    # Where the entry before it is not there, a batch may have begun earlier.
    certain = [(begin, end) for begin, end in whole if begin in firsts or begin - 1 in entries]
    assert {offset for batch in certain for offset in range(*batch)} <= shown[0].keys()
    for power_failed in (False, False, True, False):
        again, _ = start(folder, power_failed, syncs=True)
        assert [segment[:3] for segment in again.segments] == bounds
        assert readable(folder, bounds) == shown
    Repair(str(folder), lambda step: None).run()
    assert readable(folder, read_folder(str(folder)).bounds)[0] == shown[0]


def has_entry(folder, firsts, offset) -> bool:
    first = max(first for first in firsts if first <= offset)
    at = HEAD + ENTRY * (offset - first)
    return any((folder / f"{first:020}.idx").read_bytes()[at:at + ENTRY])


@pytest.mark.parametrize("at", [HEAD + ENTRY * 25 + 3, None])
def test_damage_within_a_batch_costs_one_message_at_most(folder, at):
    """It was written, and acknowledged, however the power failed later."""
    files = Files(folder)
    path, at = (files.dat, files.position(70) + 20) if at is None else (files.idx, at)
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)
    for power_failed in (True, False):
        found, _ = start(folder, power_failed, syncs=True)
        there, damaged = readable(folder, [segment[:3] for segment in found.segments])
        assert len(there) + damaged == NEXT
        assert damaged <= 1


def test_an_entry_that_a_repair_has_left_blank_costs_no_other_message_of_its_batch(folder):
    """What lacks no whole sector was lost at another time, and the rest was acknowledged."""
    Files(folder).blank_index(70, 71)
    for power_failed in (True, False):
        found, _ = start(folder, power_failed, syncs=True)
        there, damaged = readable(folder, [segment[:3] for segment in found.segments])
        assert (there.keys(), damaged) == (set(range(NEXT)) - {70}, 1)


@pytest.mark.parametrize("at", [HEAD + ENTRY * 49 + 3, HEAD + ENTRY * 40 + 9, 12])
@pytest.mark.parametrize("power_failed", [False, True])
def test_a_damaged_entry_loses_nothing(folder, at, power_failed):
    """It was written, so its record was, too."""
    files = Files(folder)
    data = bytearray(files.idx.read_bytes())
    data[at] ^= 4
    files.idx.write_bytes(data)
    for failed in (power_failed, False):
        found, _ = start(folder, failed)
        shown = readable(folder, [segment[:3] for segment in found.segments])
        assert shown == ({offset: record(offset) for offset in range(NEXT)}, 0)


def test_a_damaged_end_costs_one_message_where_numbering_has_jumped(folder):
    """The segment was the last one when the power failed; damage of its last record is not a batch without an end."""
    for kind in ("dat", "idx"):
        (folder / f"{END:020}.{kind}").unlink()
    write_segment(folder, FIRST + recovery.JUMP, 5)
    files = Files(folder)
    data = bytearray(files.dat.read_bytes())
    data[-1] ^= 4
    files.dat.write_bytes(data)
    for power_failed in (False, False):
        found, _ = start(folder, power_failed)
        assert [segment[:2] for segment in found.segments][1] == (FIRST, END)
        there, damaged = readable(folder, [segment[:3] for segment in found.segments])
        assert (there.keys() & set(range(FIRST, END)), damaged) == (set(range(FIRST, END - 1)), 1)


def test_damage_of_what_was_synced_is_mended(folder):
    """The head of the next index says that all before it was on the disk: a blank index is damage, and records count."""
    path = folder / f"{END:020}.idx"
    head = bytearray(path.read_bytes()[:HEAD - 4])
    head[-4:] = struct.pack(">I", 1)
    path.write_bytes(bytes(head) + struct.pack(">I", checksum(bytes(head))) + path.read_bytes()[HEAD:])
    Files(folder).blank_index(75, END)
    for power_failed in (True, False):
        found, _ = start(folder, power_failed)
        shown = readable(folder, [segment[:3] for segment in found.segments])
        assert shown == ({offset: record(offset) for offset in range(NEXT)}, 0)


def test_records_without_any_entry_are_kept(folder):
    files = Files(folder)
    before = files.dat.read_bytes()
    os.truncate(files.idx, 0)
    start(folder, power_failed=True)
    assert (folder / f"{FIRST:020}.dat.bad").read_bytes() == before
