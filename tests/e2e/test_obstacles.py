"""Folders and other entries that occupy the names of files which a log is about to create."""

import os
from pathlib import Path

import pytest

from tests.support.daemon import wait_until

KINDS = {"folder": lambda path: (path / "full").mkdir(parents=True), "empty folder": Path.mkdir, "pipe": os.mkfifo,
         "dangling": lambda path: path.symlink_to("nowhere"), "loop": lambda path: path.symlink_to(path.name),
         "zeros": lambda path: path.symlink_to("/dev/zero")}


@pytest.mark.parametrize("sync", ["write", "fsync"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [f"{2:020}.log", "next.tmp", "manifest", "manifest.tmp"])
def test_publishing_goes_on(daemon, name, kind, sync):
    node = daemon("--topic-storage=log", "--log-retain-time=1h", "--max-bytes-per-file=250", f"--log-sync={sync}")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    producer = node.connect()
    producer.pub("t", b"0" * 100)
    producer.pub("t", b"1" * 10)
    obstacle = node.data_path / "t.log" / name
    obstacle.unlink(missing_ok=True)
    KINDS[kind](obstacle)
    for number in range(2, 9):
        producer.pub("t", b"%d" % number * 100)
    if kind == "folder":
        assert (obstacle.parent / f"{name}.bad" / "full").is_dir()
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_without_a_manifest_that_is_a_file(daemon, kind):
    node = daemon("--topic-storage=log", "--log-retain-time=1h")
    node.connect().pub("t", b"old")
    assert node.stop() == 0
    path = node.data_path / "t.log" / "manifest"
    path.unlink()
    KINDS[kind](path)
    node.start()
    node.connect().pub("t", b"new")
    consumer = node.connect().sub("t", "c", 10)
    assert [message.body for message in consumer.messages(2)] == [b"old", b"new"]
    assert node.stop() == 0
