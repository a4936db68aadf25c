"""Checking the folder of a log topic: every kind of damage is found, and nothing else is reported."""

import json
import os
import random

import pytest

from nsqc.store.log.check import as_text, check_folder, read_log, summary
from tests.store.log.journals import ADVANCE, FIN, NAME, REQ, RESET, journal_path, write_journal
from tests.store.log.segments import BASE, Written, add_index, write_log, write_manifest, write_segment

DUE = 4_000_000_000_000_000_000


@pytest.fixture
def folder(tmp_path):
    """A topic with two segments and two channels."""
    made = tmp_path / "topic.log"
    write_log(made, [(0, 40), (40, 20)], delays={41: DUE, 43: 5})
    write_journal(made, [(1, [(RESET, 0), (NAME, "c"), (ADVANCE, 50), (FIN, 0, 45), (REQ, 46, 3, DUE)])],
                  [(2, [(RESET, 0), (NAME, "d")])])
    return made


def said(folder, is_fault: bool = True) -> list[str]:
    """Name of a file, or nothing for the folder, and the complaint about it."""
    return [f"{os.path.relpath(finding.path, folder)}: {finding.text}" for finding in check_folder(str(folder)).findings
            if finding.is_fault == is_fault]


def flipped(data: bytes, at: int, bits: int = 0x10) -> bytes:
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1:]


def flip(path, at: int, bits: int = 0x10) -> None:
    path.write_bytes(flipped(path.read_bytes(), at, bits))


def test_a_sound_folder(folder):
    verdict = check_folder(str(folder))
    assert (verdict.records, verdict.findings) == (60, [])


# ---------------------------------------------------------------------- every byte


def model(segment: Written, whole: bytes, data: bytes, is_recorded: bool) -> tuple[int, list[str]]:
    """Intact messages, and the complaints about frames: valid ones count, nothing else does. is_recorded: its end is
    known."""
    sound, texts, at, hole = 0, [], segment.first, None
    for position, end, first, following in [*segment.frames, (segment.position, 0, segment.end, segment.end)]:
        if end == 0 or (len(data) >= (end + 7) // 8 * 8 and data[position:end] == whole[position:end]):
            if at < first and (end or is_recorded):
                lost = f"messages {at} to {first - 1} are" if at < first - 1 else f"message {at} is"
                texts.append(f"damaged at byte {hole}: {lost} lost")
            sound, at, hole = sound + following - first, following, None
        elif hole is None:
            hole = position
    return sound, texts


def header_model(whole: bytes, data: bytes) -> list[str]:
    sound = sum(data[at:at + 128] == whole[at:at + 128] for at in (0, 2048))
    return [["its header is lost, and known from elsewhere"], ["one of the two copies of its header is damaged"], []][sound]


def check_everywhere(folder, segment: Written, is_recorded: bool = True) -> None:
    """Flips a bit of each byte of a header, and of every third one of the frames, and cuts the file at each."""
    whole, others = segment.path.read_bytes(), check_folder(str(folder)).records - segment.end + segment.first
    name, dice = segment.path.name, random.Random(1)
    places = [*range(130), *range(2040, 2180, 5), *range(4090, len(whole), 3)]
    for data in [*(flipped(whole, at, 1 << dice.randrange(8)) for at in places), *(whole[:at] for at in places)]:
        segment.path.write_bytes(data)
        sound, texts = model(segment, whole, data, is_recorded)
        verdict = check_folder(str(folder))
        faults = [f"{os.path.basename(finding.path)}: {finding.text}" for finding in verdict.findings if finding.is_fault]
        assert verdict.records == others + sound
        assert faults == [f"{name}: {text}" for text in header_model(whole, data) + texts]
    segment.path.write_bytes(whole)


@pytest.fixture
def small(tmp_path):
    """Three segments of three frames each, of one to four messages."""
    folder = tmp_path / "topic.log"
    return folder, write_log(folder, [(0, 7), (7, 3), (10, 9)], per_frame=3, delays={12: DUE})


@pytest.mark.parametrize("number", [0, 1])
def test_flipped_and_missing_bytes_of_a_segment_before_the_last(small, number):
    folder, written = small
    check_everywhere(folder, written[number])


def test_flipped_and_missing_bytes_of_the_last_segment(small):
    """After a stop the manifest has its end."""
    folder, written = small
    check_everywhere(folder, written[2])


def test_flipped_and_missing_bytes_of_the_last_segment_after_a_kill(small):
    """Its end is unknown: the last frame may never have been whole."""
    folder, written = small
    write_manifest(folder, written[2], clean=False)
    check_everywhere(folder, written[2], is_recorded=False)


def test_every_flipped_and_missing_byte_of_a_manifest(small):
    folder, _ = small
    path = folder / "manifest"
    whole = path.read_bytes()
    for data in [*(flipped(whole, at) for at in range(128)), *(whole[:at] for at in range(128))]:
        path.write_bytes(data)
        assert said(folder) == ["manifest: is damaged"]
        assert check_folder(str(folder)).records == 19


def test_every_flipped_bit_of_a_journal(folder):
    """But for the zeros after a frame."""
    path = journal_path(folder)
    whole = path.read_bytes()
    ends = [at - 1 for at in range(8, len(whole), 8) if whole[at:at + 4] == whole[:4]] + [len(whole) - 1]
    for at in range(len(whole)):
        path.write_bytes(flipped(whole, at))
        assert said(folder) or any(end - 4 < at <= end for end in ends), at


def test_damage_of_several_frames_and_a_batch_that_is_not_whole(tmp_path):
    folder = tmp_path / "topic.log"
    (written,) = write_log(folder, [(0, 20)], per_frame=2, more=[16, 18], clean=False)
    assert (check_folder(str(folder)).records, said(folder)) == (16, [])
    assert said(folder, False)[0].endswith(" bytes after its last message do not count")
    for place in (2, 3, 6):
        flip(written.path, written.frames[place].end - 1)
    assert said(folder) == [f"{written.path.name}: damaged at byte {written.frames[2].position}: messages 4 to 7 are lost",
                            f"{written.path.name}: damaged at byte {written.frames[6].position}: messages 12 to 13 are lost"]
    assert check_folder(str(folder)).records == 10


# ---------------------------------------------------------------------- files


def test_what_a_kill_leaves_is_not_a_fault(folder):
    newest = folder / f"{40:020}.log"
    with newest.open("ab") as file:
        file.write(newest.read_bytes()[4096:4100] + b"half a frame")
    write_journal(folder, [(1, [(FIN, 45, 1)])])
    os.truncate(journal_path(folder), journal_path(folder).stat().st_size - 1)
    for name in ("cursors.tmp", "next.tmp", "manifest.tmp", "manifest.12-3.tmp"):
        (folder / name).write_bytes(b"NSQ")
    write_segment(folder, 60, 2, sequence=3)
    assert said(folder) == []
    assert len(said(folder, False)) == 7
    assert "manifest: is older than the newest 1 segment: a start adds them" in said(folder, False)
    assert check_folder(str(folder)).records == 62


@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.parametrize("segments", [[(0, 10), (10, 5), (2**32, 3)], [(0, 10)]], ids=["last", "only"])
def test_a_log_without_its_last_or_only_segment(tmp_path, segments, journal):
    folder = tmp_path / "topic.log"
    written = write_log(folder, segments)
    if journal:
        write_journal(folder, [(1, [(RESET, 0), (NAME, "c"), (ADVANCE, written[-1].end)])])
    assert said(folder) == []
    written[-1].path.unlink()
    (fault,) = said(folder)
    assert fault.startswith(".: the newest segment is gone, with at least ")
    assert fault.endswith(f"from offset {written[-2].end if written[1:] else 0} on")
    opened = read_log(str(folder)).opened
    assert opened.resume_at >= written[-1].end
    assert summary(read_log(str(folder)))["missing"] >= 1


def test_a_log_whose_newest_segment_was_emptied(folder):
    (folder / f"{40:020}.log").write_bytes(b"")
    assert [text.split(": ", 1)[1] for text in said(folder)] == [
        "its header is lost, and known from elsewhere", "damaged at byte 4096: messages 40 to 59 are lost"]


def test_segments_that_are_missing_between_others(tmp_path):
    folder = tmp_path / "topic.log"
    written = write_log(folder, [(0, 10), (10, 5), (15, 4), (2**32, 3)])
    written[1].path.unlink()
    assert said(folder) == [".: 5 messages before offset 15 are gone, with their segments"]
    written[2].path.unlink()
    assert said(folder) == [f".: 9 messages before offset {2**32} are gone, with their segments"]
    written[0].path.unlink()
    assert said(folder) == [f".: 19 messages before offset {2**32} are gone, with their segments"]
    write_journal(folder, [(1, [(RESET, 10), (NAME, "(removed)")])])
    assert said(folder) == [f".: 9 messages before offset {2**32} are gone, with their segments"]
    write_journal(folder, [(1, [(RESET, 2**32), (NAME, "(removed)")])])
    assert said(folder) == []
    journal_path(folder).write_bytes(b"x" * 100)        # what retention has removed is unknown
    assert said(folder) == ["cursors.000001: is damaged"]
    assert check_folder(str(folder)).records == 3


def test_a_header_that_is_lost(tmp_path):
    folder = tmp_path / "topic.log"
    written = write_log(folder, [(0, 10), (10, 5), (15, 4)])
    for at in (0, 2048):
        flip(written[1].path, at)
        flip(written[2].path, at)
    # Its successor's is lost, too, so its salt is unknown. The manifest has that of the newest.
    assert said(folder) == [
        f"{written[1].path.name}: its header is lost, and with it all its messages",
        f"{written[2].path.name}: its header is lost, and known from elsewhere"]
    assert check_folder(str(folder)).records == 14


def test_a_manifest_that_is_missing(folder):
    (folder / "manifest").unlink()
    assert said(folder) == ["manifest: is missing"]
    assert check_folder(str(folder)).records == 60
    (folder / f"{40:020}.log").unlink()     # a kill of the first publish leaves one segment without a manifest
    assert said(folder) == [".: messages from offset 40 on are gone: a channel is at offset 50"]
    assert "manifest: is missing" in said(folder, False)


def test_a_channel_that_has_been_further(folder):
    write_journal(folder, [(1, [(ADVANCE, 99)])])
    assert said(folder) == [".: messages from offset 60 on are gone: a channel is at offset 99"]


def test_segments_of_another_log_and_copies(folder):
    other = write_segment(folder, 70, 2, sequence=2, log_id=7).path.name
    (folder / f"{90:020}.log").write_bytes((folder / f"{40:020}.log").read_bytes())
    again = write_segment(folder, 50, 2, sequence=2).path.name
    assert said(folder) == [f"{again}: its number, 2, is not above those before it: its messages do not count"]
    assert said(folder, False) == [f"{other}: is not a segment of this log", f"{90:020}.log: is not a segment of this log"]
    assert check_folder(str(folder)).records == 60


def test_names_of_files_that_are_none(folder):
    (folder / f"{99:020}.log").mkdir()
    os.mkfifo(folder / "cursors.000007")
    (folder / "next.tmp").symlink_to("nowhere")
    (folder / "readme").write_text("x")
    assert said(folder) == [f"{99:020}.log: is not a file", "cursors.000007: is not a file", "next.tmp: is not a file"]
    assert said(folder, False) == ["readme: is not a file of a log"]


@pytest.mark.parametrize("ending", ["dat", "idx"])
def test_files_of_the_old_format(folder, ending):
    (folder / f"{0:020}.{ending}").touch()
    (fault,) = said(folder)
    assert fault.startswith(".: it has a log in a format that no release has written: ")
    assert check_folder(str(folder)).records == 0


def test_a_damaged_journal(folder):
    ends = write_journal(folder, [(1, [(FIN, 45, 1)])], [(2, [(ADVANCE, 7)])], [(1, [(FIN, 48, 1)])])
    flip(journal_path(folder), ends[0] + 70)
    assert said(folder) == ["cursors.000001: is damaged"]
    flip(journal_path(folder), ends[0] + 70)
    flip(journal_path(folder), 70)
    assert said(folder) == ["cursors.000001: is damaged", ".: the name of channel number 1 is lost"]


# ---------------------------------------------------------------------- summaries


def test_a_summary(folder):
    topic = summary(read_log(str(folder)))
    assert (topic["topic"], topic["first"], topic["next"], topic["messages"]) == ("topic", 0, 60, 60)
    assert (topic["missing"], topic["id"], topic["folder"]) == (0, f"{255:016x}", str(folder))
    segments = topic["segments"]
    assert [(segment["first"], segment["end"]) for segment in segments] == [(0, 40), (40, 60)]
    assert topic["bytes"] == sum(segment["bytes"] for segment in segments)
    assert segments[1]["bytes"] == segments[1]["size"] - 4096
    assert [(segment["first_time"], segment["last_time"]) for segment in segments] == [
        (BASE, BASE + 39 * 10**9), (BASE + 40 * 10**9, BASE + 59 * 10**9)]
    channels = {channel["name"]: channel for channel in topic["channels"]}
    c, d = channels["c"], channels["d"]
    assert (c["cursor"], c["oldest"], c["unfinished"], c["waiting"], c["deferred"], c["lag"]) == (50, 45, 5, 1, 1, 10)
    assert (d["cursor"], d["oldest"], d["unfinished"], d["waiting"], d["deferred"], d["lag"]) == (0, 0, 0, 0, 1, 60)
    assert c["lag_seconds"] > 0
    text = as_text(topic)
    assert text.startswith("topic: 60 messages, offsets 0 to 60, ")
    assert BASE // 10**9 == 1_700_000_000 and "2023-11-14T22:13:20Z" in text
    json.dumps(topic)


def test_the_summary_of_a_damaged_log(folder):
    written = write_log(folder, [(0, 40), (40, 20), (60, 5)])
    written[1].path.unlink()
    flip(journal_path(folder), 70)
    topic = summary(read_log(str(folder)))
    assert (topic["missing"], topic["messages"], topic["journal"]["damaged"]) == (20, 45, 1)
    assert topic["segments"][1]["missing"] == 20
    assert as_text(topic).splitlines()[1:3] == ["  missing: 20 messages", "  journal: damaged at 1 place"]


def test_the_summary_of_a_topic_without_anything(tmp_path):
    (tmp_path / "new.log").mkdir()
    topic = summary(read_log(str(tmp_path / "new.log")))
    assert (topic["first"], topic["next"], topic["messages"], topic["channels"]) == (0, 0, 0, [])
    assert as_text(topic).splitlines()[1:] == ["  segments: 0", "  channels: 0"]


def test_an_index_does_not_matter(folder):
    """Nothing relies on it: a bad summary only counts as bytes after the last message."""
    path = folder / f"{0:020}.log"
    flip(path, path.stat().st_size - 1)
    assert said(folder) == []
    assert said(folder, False) == [f"{0:020}.log: 48 bytes after its last message do not count"]
    (written,) = write_log(folder.parent / "other.log", [(0, 3)])
    add_index(written)
    assert said(written.path.parent) == []
