"""What lies in a data path by the names of logs and their files: what is not the daemon's stays as it is, and costs nothing."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys

import pytest

from nsqc.store.log.format import checksum
from tests.support.counting import consume, numbered, publish
from tests.support.daemon import wait_until

LOG = ("--topic-storage=log", "--max-bytes-per-file=1000")
COUNT = 100


@pytest.fixture
def killed(daemon):
    """A daemon that was killed with messages in topic t."""
    node = daemon(*LOG)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    for begin in range(0, COUNT, 20):
        publish(node, "t", numbered(COUNT)[begin:begin + 20])       # a segment
    node.kill()
    return node


def everything(path) -> set[str]:
    """Folders, and files in them."""
    return {os.path.join(folder, name) for folder, folders, files in os.walk(path) for name in [*folders, *files]}


def test_folders_of_others_are_neither_topics_nor_removed(killed):
    others = [killed.data_path / name for name in (
        "backup.gone", "t.log~01", "t.log~\u0663", "t.log~-1", "t.log.old", ".log", "no name!.log", "x#ephemeral.log",
        f"{'y' * 65}.log", "z.log~1.log", "caf\u00e9.log")]
    for folder in others:
        folder.mkdir()
        (folder / "kept").write_bytes(b"x")
    killed.start()
    assert [topic["topic_name"] for topic in killed.stats()["topics"]] == ["t"]
    assert set(consume(killed, "t", "c", set(numbered(COUNT)))) == set(numbered(COUNT))
    assert all((folder / "kept").exists() for folder in others)
    assert killed.stop() == 0


def test_a_folder_on_another_disk(killed, tmp_path):
    """An operator has moved it, and left a link: it is the same log, until it is deleted."""
    folder, elsewhere = killed.data_path / "t.log", tmp_path / "elsewhere"
    shutil.move(folder, elsewhere)
    folder.symlink_to(elsewhere)
    killed.start()
    killed.post("/pub?topic=t", b"new")
    wanted = {*numbered(COUNT), b"new"}
    assert consume(killed, "t", "c", wanted).keys() == wanted
    killed.post("/topic/delete?topic=t")
    assert not folder.is_symlink()
    assert not elsewhere.exists()


def test_a_folder_that_is_put_back_while_the_daemon_runs(killed, tmp_path):
    """From a backup: a topic that is created then has what is in it."""
    folder, backup = killed.data_path / "t.log", tmp_path / "backup"
    shutil.copytree(folder, backup)
    killed.start()
    shutil.copytree(backup, killed.data_path / "again.log")
    killed.post("/pub?topic=again", b"new")
    wanted = {*numbered(COUNT), b"new"}
    assert consume(killed, "again", "c", wanted).keys() == wanted


def test_folders_and_junk_instead_of_files(killed):
    """Segments and journals that are not files, and offsets that no log reaches."""
    folder = killed.data_path / "t.log"
    for name in (f"{90000:020}.dat", f"{90000:020}.idx", "cursors.000007.journal", "cursors.000005.snapshot"):
        (folder / name).mkdir()
    for name in (f"{2**63 - 1:020}.dat", f"{2**63:020}.idx", f"{10**20 - 1}.dat"):
        (folder / name).write_bytes(b"junk")
    index = folder / f"{0:020}.idx"
    index.unlink()
    index.mkdir()
    killed.start()
    killed.post("/pub?topic=t", b"new")
    wanted = {*numbered(COUNT), b"new"}
    assert consume(killed, "t", "c", wanted).keys() == wanted
    assert killed.stop() == 0
    killed.start()
    assert "the daemon fails" not in killed.log


@pytest.mark.parametrize("number, kind", [(2**31 - 1, "journal"), (90_000, "snapshot")])
def test_a_journal_that_cannot_be_the_next_one(killed, number, kind):
    """It is left alone and reported; channels are where they were, and stay there."""
    other = killed.data_path / "t.log" / f"cursors.{number:06}.{kind}"
    other.write_bytes(b"not ours")
    killed.start()
    report = f"cursors.{number:06}.{kind} is not a journal of this log"
    assert killed.log.count(report) == 1 and "missing" not in killed.log
    killed.post("/pub?topic=t", b"new")
    assert set(consume(killed, "t", "c", {*numbered(COUNT), b"new"})) == {*numbered(COUNT), b"new"}
    wait_until(lambda: killed.channel("t", "c")["depth"] + killed.channel("t", "c")["in_flight_count"] == 0)
    assert killed.stop() == 0
    status, text = verify(killed.data_path)
    assert status == 0 and "is not a journal of this log" in text
    killed.start()
    assert killed.channel("t", "c")["depth"] == 0
    assert killed.log.count(report) == 2
    assert other.read_bytes() == b"not ours"


def move(folder, first: int, to: int) -> None:
    """Gives a segment another first offset, as if the log had come there."""
    index = (folder / f"{first:020}.idx").read_bytes()
    head = index[:8] + struct.pack(">q", to) + index[16:28]
    entries = [index[at:at + 12] for at in range(32, len(index), 16)]
    moved = head + struct.pack(">I", checksum(head))
    for offset, fields in enumerate(entries, to):
        moved += fields + struct.pack(">I", checksum(struct.pack(">q", offset) + fields))
    (folder / f"{to:020}.idx").write_bytes(moved)
    (folder / f"{first:020}.idx").unlink()
    (folder / f"{first:020}.dat").rename(folder / f"{to:020}.dat")


def test_offsets_end_before_the_next_start_would_not_know_them(killed):
    """Publishes are refused, with the reason; what is there is delivered, at this start and at the next one."""
    folder = killed.data_path / "t.log"
    last = max(int(path.stem) for path in folder.glob("*.dat"))
    end = 2**62 - 2**32
    move(folder, last, end - 1 - (COUNT - last))
    killed.start()
    killed.post("/pub?topic=t", b"the last one")
    status, data = killed.http("POST", "/pub?topic=t", b"refused")
    assert status == 503 and b"its offsets end" in data
    client = killed.connect()
    client.command("PUB t", b"refused")
    assert client.frame()[1].startswith(b"E_PUB_FAILED")
    refusal = "TOPIC(t): publishes are refused"
    wait_until(lambda: refusal in killed.log)
    assert killed.log.count(refusal) == 1
    assert described(killed)["next_offset"] == end
    killed.kill()
    killed.start()
    wanted = {*numbered(COUNT), b"the last one"}
    assert consume(killed, "t", "c", wanted).keys() == wanted
    assert killed.http("POST", "/pub?topic=t", b"refused")[0] == 503
    killed.post("/topic/delete?topic=t")
    killed.post("/pub?topic=t", b"accepted")
    assert described(killed)["next_offset"] == 1


def test_a_name_that_no_log_comes_to_is_left_alone(killed):
    other = killed.data_path / "t.log" / f"{2**62 - 10:020}.dat"
    other.write_bytes(b"not ours")
    killed.start()
    assert killed.log.count(f"{other.name} is not a segment of this log") == 1
    killed.post("/pub?topic=t", b"new")
    assert described(killed)["next_offset"] == COUNT + 1
    assert killed.stop() == 0
    status, text = verify(killed.data_path)
    assert status == 0 and f"{other.name}: note: is not a segment of this log" in text
    assert other.read_bytes() == b"not ours"


def verify(data_path) -> tuple[int, str]:
    """Exit code and text of nsqc log verify."""
    done = subprocess.run([sys.executable, "-m", "nsqc", "log", "verify", data_path], capture_output=True, text=True)
    return done.returncode, done.stdout


def described(node) -> dict[str, object]:
    """/topic/log."""
    return json.loads(node.http("GET", "/topic/log?topic=t")[1])


@pytest.mark.parametrize("which", ["middle", "last"])
def test_a_segment_that_somebody_has_removed(killed, which):
    """It is reported, and everything around it goes on; its offsets are not used again."""
    names = sorted(path.stem for path in (killed.data_path / "t.log").glob("*.dat"))
    number = {"middle": len(names) // 2, "last": -1}[which]
    first, end = int(names[number]), int(names[number + 1]) if which == "middle" else COUNT
    for path in (killed.data_path / "t.log").glob(f"{names[number]}.*"):
        path.unlink()
    if which == "last":         # that they were there is known from a channel
        assert verify(killed.data_path)[0] == 0
    else:
        status, text = verify(killed.data_path)
        assert status == 1 and f"messages {first} to {end - 1} are gone" in text
    killed.start()
    assert killed.log.count(f"messages {first} to {end - 1} are gone") == (which == "middle")
    log = described(killed)
    assert log["missing"] == (end - first if which == "middle" else 0)
    if which == "middle":
        status, data = killed.http("GET", f"/topic/read?topic=t&offset={first}")
        assert status == 200 and numbered(COUNT)[end] in data
    killed.post("/pub?topic=t", b"new")
    left = {body for offset, body in enumerate(numbered(COUNT)) if not first <= offset < end}
    assert consume(killed, "t", "c", left | {b"new"}).keys() == left | {b"new"}


def test_the_last_segment_is_removed_after_it_was_read(killed):
    killed.start()
    assert set(consume(killed, "t", "c", set(numbered(COUNT)))) == set(numbered(COUNT))
    wait_until(lambda: killed.channel("t", "c")["in_flight_count"] == 0)
    killed.kill()
    last = max(int(path.stem) for path in (killed.data_path / "t.log").glob("*.dat"))
    for path in (killed.data_path / "t.log").glob(f"{last:020}.*"):
        path.unlink()
    killed.start()
    assert killed.log.count(f"messages {last} to {COUNT - 1} are gone") == 1
    killed.post("/pub?topic=t", b"new")
    assert consume(killed, "t", "c", {b"new"}) == {b"new": 1}
    assert described(killed)["next_offset"] == COUNT + 1


def log_id(node) -> str | None:
    return described(node)["id"]


def test_a_log_of_an_earlier_version_gets_an_id(killed):
    folder = killed.data_path / "t.log"
    name, = folder.glob("id.*")
    name.unlink()
    for other in ("id.0123", "id.0123456789ABCDEF", "id.0123456789abcdef0", "id.", "id.0000000000000000"):
        (folder / other).write_bytes(b"x")
    killed.start()
    known = log_id(killed)
    assert known not in (None, name.suffix[1:], "0" * 16)
    killed.kill()
    killed.start()
    assert log_id(killed) == known
    assert set(consume(killed, "t", "c", set(numbered(COUNT)))) == set(numbered(COUNT))


def test_refused_publishes_are_not_lost_at_a_stop(daemon):
    node = daemon(*LOG)
    (node.data_path / "t.log").write_bytes(b"not a folder")
    assert node.http("POST", "/pub?topic=t", b"refused")[0] == 503
    assert node.stop() == 0


def test_a_channel_that_was_answered_is_in_the_journal(daemon):
    node = daemon(*LOG)
    for number in range(40):
        node.post(f"/pub?topic=t{number}", b"x")
        node.post(f"/channel/create?topic=t{number}&channel=named")
        journal = node.data_path / f"t{number}.log" / "cursors.000001.journal"
        assert journal.exists() and b"named" in journal.read_bytes()
