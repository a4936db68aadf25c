"""Foreign files and folders in a data path with the names of logs: the daemon leaves them alone and loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.support.counting import consume, numbered
from tests.support.daemon import wait_until

LOG = ("--topic-storage=log", "--max-bytes-per-file=300")
COUNT = 100


@pytest.fixture
def killed(daemon):
    """A daemon that was killed with messages in topic t."""
    node = daemon(*LOG)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    for begin in range(0, COUNT, 20):
        node.publish("t", *numbered(COUNT)[begin:begin + 20])       # a segment
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
    """An operator has moved the log and left a link: it is the same log. Deleting the topic removes the link alone."""
    folder, elsewhere = killed.data_path / "t.log", tmp_path / "elsewhere"
    shutil.move(folder, elsewhere)
    folder.symlink_to(elsewhere)
    killed.start()
    killed.post("/pub?topic=t", b"new")
    wanted = {*numbered(COUNT), b"new"}
    assert consume(killed, "t", "c", wanted).keys() == wanted
    killed.post("/topic/delete?topic=t")
    assert not folder.is_symlink()
    assert any(elsewhere.glob("*.log")) and f"{elsewhere}, is left alone" in killed.log


@pytest.mark.parametrize("name", ["x.log", "x.log.gone", "x.log~3", "x.log~3.gone", "t.log~7", "x.log.exported"])
def test_a_link_to_the_data_of_others(killed, tmp_path, name):
    """Restored with a backup: the folder that it leads to stays, and so do the messages of other topics."""
    others = tmp_path / "others"
    (others / "deep").mkdir(parents=True)
    for path in others / "precious", others / "deep" / "precious":
        path.write_bytes(b"data of others")
    (killed.data_path / name).symlink_to(others)
    killed.start("--topic-storage=memory")
    killed.restart("--topic-storage=memory")
    assert consume(killed, "t", "c", set(numbered(COUNT))).keys() == set(numbered(COUNT))
    for topic in killed.stats()["topics"]:
        killed.post(f"/topic/delete?topic={topic['topic_name']}")
    assert killed.stop() == 0
    assert (others / "precious").exists() and (others / "deep" / "precious").exists()
    if name == "t.log~7":
        assert "t.log~7 is a link and is left alone" in killed.log


def test_a_folder_that_is_put_back_while_the_daemon_runs(killed, tmp_path):
    """Restored from a backup: a topic created under that name has its messages."""
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
    for name in (f"{90000:020}.log", "next.tmp", "cursors.000007", "cursors.tmp"):
        (folder / name).mkdir()
    for name in (f"{2**63 - 1:020}.log", f"{2**63:020}.log", f"{10**20 - 1}.log"):
        (folder / name).write_bytes(b"junk")
    killed.start()
    killed.post("/pub?topic=t", b"new")
    wanted = {*numbered(COUNT), b"new"}
    assert consume(killed, "t", "c", wanted).keys() == wanted
    assert killed.stop() == 0
    killed.start()
    assert "the daemon fails" not in killed.log


def test_a_name_that_no_log_comes_to_is_left_alone(killed):
    other = killed.data_path / "t.log" / f"{2**62 - 10:020}.log"
    other.write_bytes(b"not ours")
    killed.start()
    killed.post("/pub?topic=t", b"new")
    assert described(killed)["next_offset"] == COUNT + 1
    assert killed.stop() == 0
    status, text = verify(killed.data_path)
    assert status == 1 and f"{other.name}: " in text
    assert other.read_bytes() == b"not ours"


def verify(data_path) -> tuple[int, str]:
    """Exit code and output of nsqc log verify."""
    done = subprocess.run([sys.executable, "-m", "nsqc", "log", "verify", data_path], capture_output=True, text=True)
    return done.returncode, done.stdout


def described(node) -> dict[str, object]:
    """The answer of /topic/log."""
    return json.loads(node.http("GET", "/topic/log?topic=t")[1])


@pytest.mark.parametrize("which", ["middle", "last"])
def test_a_segment_that_somebody_has_removed(killed, which):
    """It is reported, everything else works, and its offsets are not used again."""
    names = sorted(path.stem for path in (killed.data_path / "t.log").glob("*.log"))
    number = {"middle": len(names) // 2, "last": -1}[which]
    first, end = int(names[number]), int(names[number + 1]) if which == "middle" else COUNT
    (killed.data_path / "t.log" / f"{names[number]}.log").unlink()
    status, text = verify(killed.data_path)
    assert status == 1 and (f"{end - first} messages before offset {end} are" in text or which == "last")
    killed.start()
    lines = [line for line in killed.log.splitlines() if "LOG(t)" in line and " gone, with " in line]
    assert len(lines) == 1 and str(end if which == "middle" else first) in lines[0]
    log = described(killed)
    if which == "middle":
        assert log["missing"] == end - first
        status, data = killed.http("GET", f"/topic/read?topic=t&offset={first}")
        assert status == 200 and numbered(COUNT)[end] in data
    else:       # their number is unknown
        assert log["missing"] >= 1 and log["next_offset"] > COUNT
    killed.post("/pub?topic=t", b"new")
    left = {body for offset, body in enumerate(numbered(COUNT)) if not first <= offset < end}
    assert consume(killed, "t", "c", left | {b"new"}).keys() == left | {b"new"}


def test_the_last_segment_is_removed_after_it_was_read(killed):
    killed.start()
    assert set(consume(killed, "t", "c", set(numbered(COUNT)))) == set(numbered(COUNT))
    wait_until(lambda: killed.channel("t", "c")["in_flight_count"] == 0)
    killed.kill()
    last = max(int(path.stem) for path in (killed.data_path / "t.log").glob("*.log"))
    (killed.data_path / "t.log" / f"{last:020}.log").unlink()
    killed.start()
    assert f"at least {COUNT - last} messages from offset {last} on are gone, with the newest segment" in killed.log
    killed.post("/pub?topic=t", b"new")
    assert consume(killed, "t", "c", {b"new"}) == {b"new": 1}
    assert described(killed)["next_offset"] > COUNT


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
        journal = node.data_path / f"t{number}.log" / "cursors.000001"
        assert journal.exists() and b"named" in journal.read_bytes()
