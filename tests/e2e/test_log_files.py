"""Changes to a log's files during reads never stop the daemon, and the event loop never waits for the disk."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress

import pytest

from tests.support.daemon import Daemon, batch, logged, wait_until

LOG = ("--topic-storage=log", "--max-rdy-count=100000")
BODY = 1000
COUNT = 600

ON_THE_LOOP = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static void note(const char *what) {
    static int fd = -1;
    if (syscall(SYS_gettid) != getpid())
        return;
    if (fd < 0)
        fd = open(getenv("NSQC_TEST_NOTES"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (write(fd, what, strlen(what)) < 0)
        abort();
}
int fsync(int fd) { note("fsync\n"); return syscall(SYS_fsync, fd); }
int fdatasync(int fd) { note("fdatasync\n"); return syscall(SYS_fdatasync, fd); }
"""

def bodies(first: int, count: int) -> list[bytes]:
    return [b"%06d-" % number + bytes([97 + number % 26]) * (BODY - 7) for number in range(first, first + count)]


def publish(node: Daemon, first: int, count: int) -> None:
    client = node.connect()
    for begin in range(first, first + count, 100):
        client.ok("MPUB t", batch(*bodies(begin, min(100, first + count - begin))))
    client.close()


@pytest.fixture
def filled(daemon) -> Daemon:
    node = daemon(*LOG, "--log-retain-time=1h")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    publish(node, 0, COUNT)
    return node


def test_a_segment_is_cut_off_while_it_is_read(filled):
    """Removed messages are reported, remaining ones are delivered, and so are later ones."""
    consumer = filled.connect().sub("t", "c", 100)
    got = [message.body for message in consumer.messages(100, finish=True)]
    path, = (filled.data_path / "t.log").glob("*.log")
    left = 300
    os.truncate(path, 4096 + left * (BODY + 4) + 500)
    consumer.command(f"RDY {COUNT}")
    while filled.channel("t", "c")["depth"] or filled.channel("t", "c")["in_flight_count"]:
        with suppress(TimeoutError):
            message = consumer.message(0.2)
            consumer.fin(message)
            got.append(message.body)
    assert got == bodies(0, len(got))
    assert 200 < len(got) <= left
    assert filled.stats("t")["log"]["damaged"] == COUNT - len(got)
    publish(filled, COUNT, 200)
    assert [message.body for message in consumer.messages(200, finish=True)] == bodies(COUNT, 200)
    assert filled.stop() == 0
    logged(filled, "damaged")


def test_a_segment_is_removed_while_it_is_read(daemon):
    """Moving a channel, and retention, take no message from a consumer that has it in flight."""
    node = daemon(*LOG, "--max-bytes-per-file=300000")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    publish(node, 0, COUNT)
    consumer = node.connect().sub("t", "c", 150)
    first = consumer.messages(150)
    assert [message.body for message in first] == bodies(0, 150)
    node.post("/channel/seek?topic=t&channel=c&to=450")
    wait_until(lambda: len(list((node.data_path / "t.log").glob("*.log"))) == 1, "segments to go")
    consumer.command(f"RDY {COUNT}")
    assert [message.body for message in consumer.messages(COUNT - 450, finish=True)] == bodies(450, COUNT - 450)
    assert node.stop() == 0


def test_syncs_are_not_for_the_loop(daemon, tmp_path):
    """Not even when a short write starts a segment, whose name must reach the disk eventually."""
    source, library, notes = tmp_path / "loop.c", tmp_path / "loop.so", tmp_path / "notes"
    source.write_text(ON_THE_LOOP)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    node = daemon(*LOG, "--max-bytes-per-file=20000", "--log-retain-time=1h",
                  env={**os.environ, "LD_PRELOAD": str(library), "NSQC_TEST_NOTES": str(notes)})
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    client = node.connect()
    before = notes.read_text() if notes.exists() else ""
    for body in bodies(0, COUNT):
        client.ok("PUB t", body)
    consumer = node.connect().sub("t", "c", 100)
    assert [message.body for message in consumer.messages(COUNT, finish=True)] == bodies(0, COUNT)
    assert len(list((node.data_path / "t.log").glob("*.log"))) > 30
    assert (notes.read_text() if notes.exists() else "") == before
    assert node.stop() == 0


def test_each_file_is_made_when_it_is_first_needed(daemon):
    """As docs/ondisk.md describes it."""
    node = daemon(*LOG)

    def kinds(topic: str) -> list[str]:
        return sorted(path.stem if path.stem in ("cursors", "manifest") else path.suffix for path in (node.data_path / f"{topic}.log").glob("*"))

    node.post("/topic/create?topic=t")
    assert kinds("t") == [] and not (node.data_path / "t.log").exists()
    client = node.connect()
    for _ in range(2):
        client.pub("t", b"x")
        assert kinds("t") == [".log", "manifest"]
    node.post("/topic/empty?topic=t")
    assert kinds("t") == [".log", "cursors", "manifest"]
    client.pub("u", b"x")
    assert node.stop() == 0
    node.start()
    assert kinds("u") == [".log", "manifest"]
    node.post("/channel/create?topic=u&channel=c")
    assert kinds("u") == [".log", "cursors", "manifest"]
    node.post("/topic/create?topic=v")
    node.post("/channel/create?topic=v&channel=c")
    assert kinds("v") == ["cursors"]
