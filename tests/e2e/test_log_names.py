"""Other things with the names of logs and of their files: they are left alone or set aside, every intact file is delivered,
and publishing continues. test_log_model.py has such things in the way of its steps."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from nsqc.commands.app import run
from tests.e2e.test_log_model import OBSTACLES
from tests.support.counting import consume, consume_all, numbered
from tests.support.daemon import Daemon, batch, logged, wait_until

LOG = ("--topic-storage=log", "--max-bytes-per-file=300")
COUNT = 100
BODIES = [b"%03d" % number + b"." * 100 for number in range(120)]


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
    assert any(elsewhere.glob("*.log"))
    logged(killed, f"{elsewhere}, is left alone")


def test_links_to_the_data_of_others(killed, tmp_path):
    """Restored with a backup: the folders that they lead to stay, and so do the messages of other topics."""
    links = ("x.log", "x.log.gone", "x.log~3", "x.log~3.gone", "t.log~7", "x.log.exported")
    precious = [tmp_path / f"of {name}" / place for name in links for place in ("precious", "deep/precious")]
    for path in precious:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"data of others")
    for name in links:
        (killed.data_path / name).symlink_to(tmp_path / f"of {name}")
    killed.start("--topic-storage=memory")
    killed.restart("--topic-storage=memory")
    assert consume(killed, "t", "c", set(numbered(COUNT))).keys() == set(numbered(COUNT))
    for topic in killed.stats()["topics"]:
        killed.post(f"/topic/delete?topic={topic['topic_name']}")
    assert killed.stop() == 0
    assert all(path.exists() for path in precious)
    logged(killed, "t.log~7 is a link and is left alone")


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
    logged(killed, f"at least {COUNT - last} messages from offset {last} on are gone, with the newest segment")
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


# ---------------------------------------------------------------------- something else in place of a file

def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)           # the path may exceed the limit of a socket address
    try:
        with closing(socket.socket(socket.AF_UNIX)) as sock:
            sock.bind(path.name)
    finally:
        os.chdir(here)


KINDS = {**OBSTACLES, "socket": make_socket}


@pytest.fixture
def nsqc(capsys):
    """nsqc(*words) -> exit code and output."""
    def call(*words) -> tuple[int, str]:
        code = run([str(word) for word in words])
        return code, "".join(capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """At least three segments, with a deferred message in the last one; the first 20 messages are finished."""
    node = Daemon(tmp_path_factory.mktemp("model") / "data", "--topic-storage=log", "--max-bytes-per-file=4000")
    try:
        node.post("/topic/create?topic=t")
        node.post("/channel/create?topic=t&channel=c")
        client = node.connect()
        for at in range(0, 110, 10):
            client.ok("MPUB t", batch(*BODIES[at:at + 10]))
        for body in BODIES[110:]:
            client.ok("DPUB t 1", body)
        consumer = node.connect().sub("t", "c", 1)
        consumer.messages(20, finish=True)
        wait_until(lambda: node.channel("t", "c")["depth"] <= 100, "the end of the first ones")
        assert node.stop() == 0
    finally:
        node.close()
    return node.data_path


def replaced(model: Path, to: Path, which: str, kind: str) -> Path:
    """A copy in which something else has the name of a file; returns its path."""
    shutil.copytree(model, to)
    path = sorted((to / "t.log").glob(which))[0 if which == "*.log" else -1]
    path.unlink()
    KINDS[kind](path)
    return path


@pytest.mark.parametrize(("which", "kind"), [("*.log", "folder"), ("*.log", "zeros"), ("cursors.*", "socket"), ("cursors.*", "loop")])
def test_a_start_without_a_file(daemon, model, tmp_path, which, kind):
    replaced(model, tmp_path / "data", which, kind)
    node = daemon("--topic-storage=log", "--max-bytes-per-file=4000", data_path=tmp_path / "data")
    if which == "*.log":           # the first segment is gone, and all others are there
        first = json.loads(node.http("GET", "/topic/log?topic=t")[1])["first_offset"]
        assert 0 < first < 60
        assert consume_all(node, "t", "c", set(BODIES[first:])) == set(BODIES[first:])
    else:
        assert set(BODIES[20:]) <= set(consume(node, "t", "c", set(BODIES[20:])))
    node.post("/pub?topic=t", b"new")
    assert b"new" in consume(node, "t", "c", {b"new"})
    assert node.stop() == 0


@pytest.mark.parametrize("which", ["*.log", "manifest", "cursors.*"])
def test_tools_without_a_file(nsqc, model, tmp_path, which):
    for kind in KINDS:
        path = replaced(model, tmp_path / kind, which, kind)
        code, text = nsqc("log", "verify", tmp_path / kind)
        assert code == 1 and f"{path.name}: is not a file" in text
        nsqc("log", "inspect", "--json", tmp_path / kind)
        assert os.path.lexists(path)


@pytest.mark.parametrize("kind", OBSTACLES)
def test_publishing_goes_on_where_the_next_segments_name_is_taken(daemon, kind):
    node = daemon("--topic-storage=log", "--log-retain-time=1h", "--max-bytes-per-file=250")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    producer = node.connect()
    producer.pub("t", b"0" * 100)
    producer.pub("t", b"1" * 10)
    obstacle = node.data_path / "t.log" / f"{2:020}.log"
    OBSTACLES[kind](obstacle)
    for number in range(2, 9):
        producer.pub("t", b"%d" % number * 100)
    if kind == "folder":
        assert (obstacle.parent / f"{obstacle.name}.bad" / "full").is_dir()
    for again in (False, True):
        if again:
            node.kill()
            node.start()
            assert "are gone" not in node.log
        node.post("/channel/seek?topic=t&channel=c&to=beginning")
        consumer = node.connect().sub("t", "c", 10)
        assert [message.body[:1] for message in consumer.messages(9, finish=True)] == [b"%d" % number for number in range(9)]
        consumer.close()
        wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
