"""A directory entry other than a file has the name of a log's file: intact files are delivered, and publishing
continues."""

from __future__ import annotations

import json
import os
import shutil
import socket
from contextlib import closing
from pathlib import Path

import pytest

from nsqc.commands.app import run
from tests.support.counting import consume, consume_all
from tests.support.daemon import Daemon, batch, wait_until

LOG = ("--topic-storage=log", "--max-bytes-per-file=4000")
BODIES = [b"%03d" % number + b"." * 100 for number in range(120)]


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)           # the path may exceed the limit of a socket address
    try:
        with closing(socket.socket(socket.AF_UNIX)) as sock:
            sock.bind(path.name)
    finally:
        os.chdir(here)


KINDS = {"folder": Path.mkdir, "pipe": os.mkfifo, "socket": make_socket, "loop": lambda path: path.symlink_to(path.name),
         "zeros": lambda path: path.symlink_to("/dev/zero"), "dangling": lambda path: path.symlink_to("nowhere")}


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
    node = Daemon(tmp_path_factory.mktemp("model") / "data", *LOG)
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", ["*.log", "manifest", "cursors.*"])
def test_a_start(daemon, model, tmp_path, which, kind):
    replaced(model, tmp_path / "data", which, kind)
    node = daemon(*LOG, data_path=tmp_path / "data")
    if which == "*.log":           # the first segment is gone, and all others are there
        first = json.loads(node.http("GET", "/topic/log?topic=t")[1])["first_offset"]
        assert 0 < first < 60
        assert consume_all(node, "t", "c", set(BODIES[first:])) == set(BODIES[first:])
    else:
        assert set(BODIES[20:]) <= set(consume(node, "t", "c", set(BODIES[20:])))
    node.post("/pub?topic=t", b"new")
    assert b"new" in consume(node, "t", "c", {b"new"})
    assert node.stop() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", ["*.log", "manifest", "cursors.*"])
def test_tools(nsqc, model, tmp_path, which, kind):
    path = replaced(model, tmp_path / "data", which, kind)
    code, text = nsqc("log", "verify", tmp_path / "data")
    assert code == 1 and f"{path.name}: is not a file" in text
    nsqc("log", "inspect", "--json", tmp_path / "data")
    assert os.path.lexists(path)
