"""Checking and mending the folder of a log topic: every kind of damage is found, and no intact record is lost."""

import os
import random
import shutil

import pytest

from nsqc.store.log.check import check_folder
from nsqc.store.log.exportplan import Sources
from nsqc.store.log.files import read_folder
from nsqc.store.log.progress import read_progress
from nsqc.store.log.repair import Repair
from nsqc.store.log.segmentfile import SegmentFile
from nsqc.store.log.summary import as_text, read_log, summary
from tests.store.log.journals import ADVANCE, FIN, NAME, REQ, RESET, SKIP, as_described, frame, section, write_journal
from tests.store.log.segments import BASE, Written, due_entry, record, write_segment

DUE = 4_000_000_000_000_000_000


@pytest.fixture
def folder(tmp_path):
    """A topic with two segments and two channels."""
    made = tmp_path / "topic.log"
    write_segment(made, 0, 40, more=[3, 4, 20])
    write_segment(made, 40, 20)
    (made / f"{40:020}.due").write_bytes(due_entry(41, DUE) + due_entry(43, 5))
    write_journal(made, 1, frame(section(1, [(RESET, 0), (NAME, "c"), (ADVANCE, 50), (FIN, 0, 45), (REQ, 46, 3, DUE)])),
                  frame(section(2, [(RESET, 0), (NAME, "d")])))
    return made


def faults(folder) -> list[str]:
    return [finding.text for finding in check_folder(str(folder)).findings if finding.is_fault]


def notes(folder) -> list[str]:
    return [finding.text for finding in check_folder(str(folder)).findings if not finding.is_fault]


def repair(folder, dry_run: bool = False) -> list[str]:
    lines: list[str] = []
    assert Repair(str(folder), lines.append, dry_run).run() == len(lines)
    return lines


def flip(path, at: int, bits: int = 0x10) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def contents(folder) -> dict[str, bytes]:
    """All files."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def readable(folder) -> dict[int, bytes]:
    """Offset to record, of all that are intact."""
    found = {}
    for first, end, data_bytes in read_folder(str(folder)).bounds:
        with SegmentFile(str(folder), first, end, data_bytes) as file:
            found.update({offset: file.read(*file.locate(offset)) for offset in range(first, end)
                          if file.is_intact(offset)})
    return found


def all_records(count: int = 60) -> dict[int, bytes]:
    return {offset: record(offset) for offset in range(count)}


def test_a_sound_folder(folder):
    verdict = check_folder(str(folder))
    assert (verdict.records, verdict.findings) == (60, [])
    before = contents(folder)
    assert repair(folder) == []
    assert contents(folder) == before


def test_every_flipped_bit_is_found(folder):
    """In all files. At the end of a file it may look like what a kill leaves."""
    dice = random.Random(4)
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        for at in dice.sample(range(size), min(size, 60)):
            bit = 1 << dice.randrange(8)
            flip(path, at, bit)
            is_at_end = path.suffix == ".journal" or (path.name == f"{40:020}.idx" and at >= size - 16)
            assert faults(folder) or (is_at_end and notes(folder)), (path.name, at)
            flip(path, at, bit)
    assert faults(folder) == []


def test_what_a_kill_leaves_is_not_a_fault(folder):
    with (folder / f"{40:020}.dat").open("ab") as file:
        file.write(record(60) + record(61)[:30])
    with (folder / f"{40:020}.idx").open("ab") as file:
        file.write(b"half an entry"[:9])
    with (folder / "cursors.000001.journal").open("ab") as file:
        file.write(frame(section(1, [(FIN, 45, 1)]))[:-1])
    (folder / "cursors.000002.snapshot.tmp").write_bytes(b"NSQ")
    (folder / f"{60:020}.due").write_bytes(due_entry(60, DUE))
    with (folder / f"{40:020}.due").open("ab") as file:
        file.write(b"half")
    assert faults(folder) == []
    assert len(notes(folder)) == 6
    assert len(repair(folder)) == 2
    assert readable(folder) == all_records()
    assert not any("behind its last message" in note and "dat" in note for note in notes(folder))


@pytest.mark.parametrize("damage", ["missing", "head", "empty", "zeros", "some", "every second", "a run", "the last"])
def test_an_index_is_made_again(folder, damage):
    path = folder / f"{40:020}.idx"
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "head":
        flip(path, 17)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "zeros":
        path.write_bytes(bytes(len(whole)))
    else:
        for offset in {"some": [3, 11], "every second": range(0, 20, 2), "a run": range(5, 12), "the last": [19]}[damage]:
            flip(path, 32 + 16 * offset + offset % 16)
    assert faults(folder) or damage == "the last"
    before = contents(folder)
    assert len(repair(folder, dry_run=True)) == 1
    assert contents(folder) == before
    assert len(repair(folder)) == 1
    assert faults(folder) == [] and readable(folder) == all_records()
    assert contents(folder).get(f"{40:020}.idx.bad") == before.get(f"{40:020}.idx")
    if damage not in ("missing", "empty", "zeros"):
        # The same to the bit, the last digits of times aside.
        rebuilt = path.read_bytes()
        assert damage == "head" or [rebuilt[at:at + 4] for at in range(32, len(whole), 16)] == [
            whole[at:at + 4] for at in range(32, len(whole), 16)]
    assert repair(folder) == []


@pytest.mark.parametrize("damaged", [{4}, {4, 5}, {19}, {0}])
def test_records_keep_their_offsets_around_damage(folder, damaged):
    """An index that is lost, and records that are: with one gap all others have their numbers, unless it is the end."""
    segment = folder / f"{0:020}.dat"
    whole = Written(0, 40, segment, folder / f"{0:020}.idx", [record(offset) for offset in range(40)])
    for offset in damaged:
        flip(segment, whole.position(offset))
    whole.idx.unlink()
    repair(folder)
    assert readable(folder) == {offset: data for offset, data in all_records().items() if offset not in damaged}
    progress = read_progress(str(folder)).named["c"]
    assert (progress.out, progress.cursor) == ([(45, 46), (47, 50)], 50)


def test_records_whose_offsets_are_not_known_come_again(folder):
    """Two gaps, and no index: numbers behind the first may be wrong, so all of them are unfinished."""
    segment = folder / f"{0:020}.dat"
    whole = Written(0, 40, segment, folder / f"{0:020}.idx", [record(offset) for offset in range(40)])
    for offset in (10, 11, 30):
        flip(segment, whole.position(offset))
    whole.idx.unlink()
    lines = repair(folder)
    assert any("come again" in line for line in lines)
    kept = readable(folder)
    assert set(kept.values()) == {data for offset, data in all_records().items() if offset not in (10, 11, 30)}
    named = read_progress(str(folder)).named
    pending = {offset for first, end in named["c"].out for offset in range(first, end)}
    assert {offset for offset in kept if 10 <= offset < 40} <= pending
    assert all(kept[offset] == record(offset) for offset in range(10))


def test_finished_ahead_of_the_cursor_is_taken_back_if_offsets_are_not_known(folder):
    write_journal(folder, 2, frame(section(2, [(ADVANCE, 5), (FIN, 0, 2), (SKIP, 20, 4)])))
    segment = folder / f"{0:020}.dat"
    whole = Written(0, 40, segment, folder / f"{0:020}.idx", [record(offset) for offset in range(40)])
    for offset in (10, 11, 30):
        flip(segment, whole.position(offset))
    whole.idx.unlink()
    repair(folder)
    channel = read_progress(str(folder)).named["d"]
    assert (channel.cursor, channel.out, channel.skips) == (2, [], [])


def test_damaged_records_stay_reported(folder):
    flip(folder / f"{0:020}.dat", 400)
    assert len(faults(folder)) == 1
    assert repair(folder) == []
    assert len(readable(folder)) == 59


def test_due_times(folder):
    flip(folder / f"{40:020}.due", 3)
    assert len(repair(folder)) == 1
    assert (folder / f"{40:020}.due").read_bytes() == due_entry(43, 5)
    assert (folder / f"{40:020}.due.bad").exists() and faults(folder) == []


def test_a_damaged_journal_is_made_again(folder):
    write_journal(folder, 2, frame(section(1, [(FIN, 45, 1)])), frame(section(2, [(ADVANCE, 7)])),
                  frame(section(1, [(FIN, 48, 1)])))
    path = folder / "cursors.000002.journal"
    flip(path, 16 + 8 + 5)
    assert faults(folder)
    before = contents(folder)
    assert repair(folder, dry_run=True) and contents(folder) == before
    assert repair(folder)
    assert faults(folder) == []
    assert as_described(read_progress(str(folder))) == {
        1: ("c", 50, {45, 47, 49}, set(), {46: (3, DUE)}), 2: ("d", 7, set(range(7)), set(), {})}
    assert sorted(name for name in os.listdir(folder) if name.startswith("cursors")) == [
        "cursors.000002.journal.bad", "cursors.000003.journal", "cursors.000003.snapshot"]


def test_a_channel_whose_name_is_lost_begins_again(folder):
    """nsqd.dat still has it."""
    (folder.parent / "nsqd.dat").write_text(
        '{"topics":[{"name":"topic","channels":[{"name":"c"},{"name":"d"}]}],"version":"1.3.0"}')
    path = folder / "cursors.000001.journal"
    flip(path, 16 + 8 + 18)
    lines = repair(folder)
    assert any("channel c is lost" in line for line in lines)
    named = read_progress(str(folder)).named
    assert {name: (channel.cursor, channel.out) for name, channel in named.items()} == {"c": (0, []), "d": (0, [])}
    assert faults(folder) == []


def test_a_repair_that_was_killed_is_finished_by_the_next(folder, tmp_path):
    """Each step is a rename, or can be repeated: what is there after each of them is mended to the same."""
    flip(folder / f"{40:020}.idx", 40)
    with (folder / f"{40:020}.dat").open("ab") as file:
        file.write(b"half")
    flip(folder / "cursors.000001.journal", 16 + 8 + 18)
    original = tmp_path / "original"
    shutil.copytree(folder, original)
    repair(folder)
    final = {name: data for name, data in contents(folder).items() if "bad" not in name}
    for name in final:
        partly = tmp_path / f"{name}.part" / "topic.log"
        shutil.copytree(original, partly)
        if name.endswith("snapshot"):
            continue  # comes with its journal only
        (partly / name).write_bytes(final[name])
        repair(partly)
        assert readable(partly) == all_records()
        assert as_described(read_progress(str(partly))) == as_described(read_progress(str(folder)))


# ---------------------------------------------------------------------- summaries


def test_a_summary(folder):
    topic = summary(read_log(str(folder)))
    assert (topic["topic"], topic["first"], topic["next"], topic["messages"]) == ("topic", 0, 60, 60)
    assert topic["bytes"] == sum(map(len, all_records().values()))
    assert [(segment["first"], segment["end"]) for segment in topic["segments"]] == [(0, 40), (40, 60)]
    channels = {channel["name"]: channel for channel in topic["channels"]}
    c, d = channels["c"], channels["d"]
    assert (c["cursor"], c["oldest"], c["unfinished"], c["waiting"], c["deferred"], c["lag"]) == (50, 45, 5, 1, 1, 10)
    assert (d["cursor"], d["oldest"], d["unfinished"], d["waiting"], d["deferred"], d["lag"]) == (0, 0, 0, 0, 1, 60)
    assert c["lag_seconds"] > 0
    text = as_text(topic)
    assert text.startswith("topic: 60 messages, offsets 0 to 60, ")
    assert BASE // 10**9 == 1_700_000_000 and "2023-11-14T22:13:20Z" in text


def test_the_summary_of_a_topic_without_anything(tmp_path):
    (tmp_path / "new.log").mkdir()
    topic = summary(read_log(str(tmp_path / "new.log")))
    assert (topic["first"], topic["next"], topic["messages"], topic["channels"]) == (0, 0, 0, [])
    assert as_text(topic).splitlines()[1:] == ["  segments: 0", "  channels: 0"]


def damage_at_random(folder, made: list[Written], chance: random.Random) -> None:
    """A few bits and stretches of data and indexes, and ends that are cut off."""
    for _ in range(chance.randint(1, 5)):
        segment = chance.choice(made)
        offset = chance.randrange(segment.first, segment.end)
        kind = chance.choice(["entry", "entries", "zeros", "size", "body", "data", "cut idx", "cut dat", "both"])
        if kind in ("entry", "both"):
            flip_if_there(segment.idx, 32 + 16 * (offset - segment.first) + chance.randrange(16))
        if kind in ("size", "both"):
            flip_if_there(segment.dat, segment.position(offset) + chance.randrange(4))
        if kind == "body":
            flip_if_there(segment.dat, segment.position(offset) + chance.randrange(4, 40))
        if kind in ("entries", "zeros"):
            length = 16 * chance.randint(1, 12)
            overwrite(segment.idx, 32 + 16 * (offset - segment.first),
                      bytes(length) if kind == "zeros" else chance.randbytes(length))
        if kind == "data":
            overwrite(segment.dat, segment.position(offset), chance.randbytes(chance.randint(1, 300)))
        if kind.startswith("cut"):
            path = segment.idx if kind == "cut idx" else segment.dat
            os.truncate(path, chance.randrange(path.stat().st_size + 1))


def flip_if_there(path, at: int) -> None:
    if at < path.stat().st_size:
        flip(path, at)


def overwrite(path, at: int, data: bytes) -> None:
    """Within what there is."""
    content = bytearray(path.read_bytes())
    data = data[:max(len(content) - at, 0)]
    content[at:at + len(data)] = data
    path.write_bytes(content)


@pytest.mark.parametrize("seed", range(500))
def test_one_repair_is_enough(tmp_path, seed):
    """Whatever is damaged: it loses nothing that could be read, the next finds nothing to do, and the folder can be
    exported."""
    chance = random.Random(seed)
    folder = tmp_path / "topic.log"
    made = [write_segment(folder, 0, 40, more=[3, 4, 20]), write_segment(folder, 40, 20), write_segment(folder, 60, 12)]
    write_journal(folder, 1, frame(section(1, [(RESET, 0), (NAME, "c")])))
    damage_at_random(folder, made, chance)
    before = readable(folder)
    repair(folder)
    assert before.items() <= readable(folder).items()
    assert repair(folder) == []
    assert Sources(read_log(str(folder))).unindexed == []
