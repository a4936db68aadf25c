"""`nsqc bucket`: what it lists, finds and removes."""

import json
import os
import time

import pytest

from nsqc.bucket import check
from nsqc.bucket.commit import DamagedError, commit_name
from nsqc.bucket.ship import Shipper
from nsqc.bucket.store import open_bucket
from nsqc.bucket.takeover import RefusedError
from nsqc.commands.app import run
from tests.bucket.support import Log, Machine, MemoryLogs
from tests.bucket.test_ship import publish


@pytest.fixture
def nsqc(capsys):
    """nsqc(*words) -> exit code, stdout, stderr of `nsqc bucket`."""
    def call(*words) -> tuple[int, str, str]:
        code = run(["bucket", *map(str, words)])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def uri(tmp_path):
    """A node that was stopped: one checkpoint, one log of 40 messages."""
    uri = f"file://{tmp_path}/bucket"
    machine = Machine(None, tmp_path, "one")
    machine.root = open_bucket(uri)
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    shipper = Shipper(machine.take_over(), logs, linger=0.0, idle=3600)
    shipper.start()
    for _ in range(4):
        publish(shipper, log, 10)
        assert logs.wait(log)
    assert shipper.stop(60)
    return uri


def test_ls(nsqc, uri):
    code, out, _ = nsqc("ls", uri)
    assert code == 0
    assert out.startswith("nsqd-1: stopped ") and out.endswith("1 topics, 40 messages, 3,520 bytes\n"), out
    (node,) = json.loads(nsqc("ls", "--json", uri)[1])
    assert (node["node"], node["host"], node["epoch"], node["is_stopped"]) == ("nsqd-1", "one", 1, True)


def test_verify_finds_a_changed_byte_and_a_lost_object(nsqc, uri):
    assert nsqc("verify", uri)[:2] == (0, "nsqd-1: ok, 40 messages\n")
    folder = uri.removeprefix("file://") + "/nsqd-1/data"
    (name,) = os.listdir(folder)
    with open(f"{folder}/{name}", "r+b") as file:
        file.seek(70)
        file.write(b"?")
    code, out, _ = nsqc("verify", uri, "nsqd-1")
    assert code == 1 and f"data/{name}: messages 0 to 39 are damaged" in out
    os.unlink(f"{folder}/{name}")
    code, out, _ = nsqc("verify", uri)
    assert code == 1 and f"data/{name}: not found" in out and out.endswith("nsqd-1: 1 fault, 40 messages\n")


def test_orphans_are_removed_when_they_are_old(nsqc, uri):
    node = open_bucket(uri).below("nsqd-1")
    names = f"data/{'1' * 32}", f"data/{'2' * 32}", "checkpoint/00000000000000000001"
    for name in names:
        node.create(name, b"what a crash left")
    old = time.time() - 8 * 86400
    os.utime(f"{uri.removeprefix('file://')}/nsqd-1/{names[0]}", (old, old))
    code, out, _ = nsqc("verify", uri)
    assert code == 0 and all(f"nothing names {name}, 17 bytes" in out for name in names)
    code, out, _ = nsqc("verify", "--remove-orphans", uri)
    assert code == 0 and out.count("removed") == 1 and f"removed {names[0]}" in out
    assert names[0] not in nsqc("verify", uri)[1]


def test_a_living_node_is_neither_an_orphan_nor_dropped(uri, tmp_path):
    machine = Machine(None, tmp_path, "two")
    machine.root = root = open_bucket(uri)
    log = Log(7, "orders")
    log.append([b"body"] * 40)
    logs = MemoryLogs(log)
    shipper = Shipper(machine.take_over(), logs, linger=0.0, idle=0.1, checkpoint_commits=3)
    shipper.start()
    for _ in range(10):
        publish(shipper, log, 10)
        assert logs.wait(log)
        verdict = check.verify(root, "nsqd-1")
        assert verdict.faults == []
        # An object may be put, and not be named yet.
        assert all(entry.name.startswith("data/") for entry in verdict.orphans) and verdict.removable == []
    with pytest.raises(RefusedError, match="node nsqd-1 is alive"):
        check.drop(root, "nsqd-1", watch=1)
    assert shipper.stop(60)


def test_drop(nsqc, uri):
    code, out, _ = nsqc("drop", uri, "nsqd-1")
    assert code == 0 and out.startswith("nsqd-1: deleted ")
    assert nsqc("ls", uri) == (0, "", "")
    assert [entry.name for entry in open_bucket(uri).entries()] == ["cluster"]
    assert nsqc("drop", uri, "nsqd-9")[0] == 1


@pytest.mark.parametrize("words", [("ls",), ("verify",), ("drop", "nsqd-1"), ("adopt", "nsqd-1")])
def test_a_bucket_that_no_node_has_used_is_named(nsqc, tmp_path, words):
    (tmp_path / "data").mkdir()
    more = ("--data-path", tmp_path / "data") if words[0] == "adopt" else ()
    assert nsqc(words[0], "acme", *words[1:], *more)[0] == 2
    code, out, err = nsqc(words[0], f"file://{tmp_path}/nothing", *words[1:], *more)
    assert (code, out) == (1, "") and f"{tmp_path}/nothing: no node has used this bucket" in err
    assert not (tmp_path / "nothing").exists() and not (tmp_path / "data.aside").exists()


def test_a_wrong_name_is_not_an_empty_node(nsqc, uri, tmp_path):
    code, out, _ = nsqc("verify", uri, "nsqd-9")
    assert (code, out) == (1, "nsqd-9: node nsqd-9 does not exist\n")
    data = tmp_path / "data"
    data.mkdir()
    (data / "nsqd.dat").write_text("{}")
    code, out, err = nsqc("adopt", uri, "nsqd-9", "--data-path", data)
    assert (code, out) == (1, "") and "node nsqd-9 does not exist" in err
    assert (data / "nsqd.dat").exists() and not (tmp_path / "data.aside").exists()


def test_a_damaged_node_hides_no_other_and_can_be_dropped(nsqc, uri, tmp_path, monkeypatch):
    Machine(None, tmp_path, "other")
    machine = Machine(None, tmp_path, "other")
    machine.root = open_bucket(uri)
    machine.take_over("nsqd-2")
    folder = tmp_path / "bucket/nsqd-2"
    (folder / "commit/00000000000000000002").write_bytes(b"garbage")
    (folder / "commit/00000000000000000003").symlink_to("/etc/hostname")
    (tmp_path / "bucket/\x1b[2J").mkdir()
    (tmp_path / "bucket/\x1b[2J/object").write_bytes(b"")
    code, out, err = nsqc("ls", uri)
    assert code == 1 and out.count("\n") == 1 and out.startswith("nsqd-1: stopped ")
    assert err == "nsqc bucket ls: nsqd-2: commit/00000000000000000002: not written by nsqc\n"
    code, out, _ = nsqc("verify", uri)
    assert code == 1 and "nsqd-1: ok, 40 messages\n" in out and "nsqd-2: commit/00000000000000000002: not" in out
    with pytest.raises(DamagedError):
        machine.take_over("nsqd-2")
    node, number = open_bucket(uri).below("nsqd-2"), iter(range(4, 99))
    monkeypatch.setattr(check.time, "sleep", lambda _: node.create(commit_name(next(number)), b"alive"))
    assert nsqc("drop", uri, "nsqd-2")[0] == 1
    monkeypatch.setattr(check.time, "sleep", lambda _: None)
    code, out, err = nsqc("drop", uri, "nsqd-2")
    assert code == 0 and out.startswith("nsqd-2: deleted "), err
    assert nsqc("ls", uri)[0] == 0


def test_garbage_below_a_checkpoint_is_an_orphan(nsqc, uri, tmp_path):
    folder = tmp_path / "bucket/nsqd-1"
    (folder / "checkpoint/\u0661").write_bytes(b"")
    (folder / "data/\x1b[2J").write_bytes(b"")
    code, out, _ = nsqc("verify", uri)
    assert code == 0 and out.count("nothing names") == 2 and "\x1b" not in out


def test_a_clock_that_is_ahead_is_said_to_be(nsqc, uri, tmp_path, monkeypatch):
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 10**18)      # for 31 years
    machine = Machine(None, tmp_path, "two")
    machine.root = open_bucket(uri)
    machine.take_over()
    assert nsqc("ls", uri)[1].startswith("nsqd-1: last commit in the future, by its clock, by two, epoch 2")
