"""`nsqc bucket`: what it lists, finds and removes."""

import json
import os
import time

import pytest

from nsqc.bucket import check
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
    with pytest.raises(RefusedError, match="alive on two"):
        check.drop(root, "nsqd-1", watch=60)
    assert shipper.stop(60)


def test_drop(nsqc, uri):
    code, out, _ = nsqc("drop", uri, "nsqd-1")
    assert code == 0 and out.startswith("nsqd-1: deleted ")
    assert nsqc("ls", uri) == (0, "", "")
    assert [entry.name for entry in open_bucket(uri).entries()] == ["cluster"]
    assert nsqc("drop", uri, "nsqd-9")[0] == 1


def test_what_cannot_be_read_is_said_in_one_line(nsqc, tmp_path):
    assert nsqc("ls", "acme")[0] == 2
    code, _, err = nsqc("verify", f"file://{tmp_path}/nothing", "nsqd-1")
    assert code == 1 and err == f"nsqc bucket verify: file://{tmp_path}/nothing: cluster: not found\n"
