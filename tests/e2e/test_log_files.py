"""What happens to the files of a log while it is read is no reason to stop, and nothing that waits for a disk is done by
the thread that serves everybody."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
from contextlib import suppress

import pytest

from tests.support.daemon import Daemon, Message, batch, wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.sizes import SIZES

LOG = ("--topic-storage=log", "--max-rdy-count=100000")
BODY = 1000
COUNT = 600         # of 1,030 bytes each: blocks of 16, 64, 64, ... KB are read

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

KILLED_AT_AN_INDEX = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static ssize_t done(int fd, const void *data, size_t size, off_t at) {
    char name[64], path[4096] = "";
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    if (access(getenv("NSQC_TEST_ARMED"), F_OK) == 0 && readlink(name, path, sizeof(path) - 1) > 0 && strstr(path, ".idx"))
        kill(getpid(), SIGKILL);
    return syscall(SYS_pwrite64, fd, data, size, at);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return done(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) { return done(fd, data, size, at); }
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


@pytest.mark.parametrize("kind", ["dat", "idx"])
def test_a_segment_is_cut_off_while_it_is_read(filled, kind):
    """What is gone is said to be, what is still there is delivered, and what comes then too. Without index entries, records
    are found by those before them."""
    consumer = filled.connect().sub("t", "c", 100)
    got = [message.body for message in consumer.messages(100, finish=True)]
    path = next((filled.data_path / "t.log").glob(f"*.{kind}"))
    left = 300
    os.truncate(path, left * (BODY + 30) + 500 if kind == "dat" else 32 + 16 * left)
    consumer.command(f"RDY {COUNT}")
    while len(got) < left or filled.channel("t", "c")["depth"] or filled.channel("t", "c")["in_flight_count"]:
        with suppress(TimeoutError):
            message = consumer.message(0.2)
            consumer.fin(message)
            got.append(message.body)
    assert got == bodies(0, len(got))
    assert left <= len(got) < COUNT if kind == "dat" else len(got) == COUNT
    publish(filled, COUNT, 200)
    new = [message.body for message in consumer.messages(200, finish=True)]
    assert new == bodies(COUNT, 200)
    assert filled.stop() == 0
    assert ("damaged records" in filled.log) == (kind == "dat")


def test_a_segment_is_removed_while_it_is_read(daemon):
    """A channel that is moved on, and retention, take nothing from whoever has the messages."""
    node = daemon(*LOG, "--max-bytes-per-file=300000")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    publish(node, 0, COUNT)
    consumer = node.connect().sub("t", "c", 150)
    first = consumer.messages(150)
    assert [message.body for message in first] == bodies(0, 150)
    node.post("/channel/seek?topic=t&channel=c&to=450")
    wait_until(lambda: len(list((node.data_path / "t.log").glob("*.dat"))) == 1, "segments to go")
    consumer.command(f"RDY {COUNT}")
    assert [message.body for message in consumer.messages(COUNT - 450, finish=True)] == bodies(450, COUNT - 450)
    assert node.stop() == 0


def test_syncs_are_not_for_the_loop(daemon, tmp_path):
    """Not even when a short write begins a segment, whose name has to be on disk some time."""
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
    assert len(list((node.data_path / "t.log").glob("*.dat"))) > 30
    assert (notes.read_text() if notes.exists() else "") == before
    assert node.stop() == 0


def test_killed_between_a_delivery_and_its_index_entry(daemon, tmp_path):
    """The journal is not ahead of the log, so nothing seems to be missing."""
    source, library, armed = tmp_path / "kill.c", tmp_path / "kill.so", tmp_path / "armed"
    source.write_text(KILLED_AT_AN_INDEX)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    node = daemon(*LOG, env={**os.environ, "LD_PRELOAD": str(library), "NSQC_TEST_ARMED": str(armed)})
    client = node.connect().sub("t", "c", 10)       # which publishes, too
    got = []
    for number in range(3):
        client.send(b"PUB t\n" + struct.pack(">i", 1) + b"%d" % number)
        frames = [client.frame(), client.frame()]
        got += [Message(data) for kind, data in frames if kind == 2]
    assert len(got) == 3
    first = got[0]
    armed.touch()
    client.send(b"PUB t\n" + struct.pack(">i", 1) + b"x" + b"FIN " + first.id + b"\n")
    assert node.process.wait(WAIT_SECONDS) == -signal.SIGKILL
    armed.unlink()
    node.start()
    known = json.loads(node.http("GET", "/topic/log?topic=t")[1])
    assert (known["missing"], known["next_offset"]) == (0, 3)
    assert len(node.connect().sub("t", "c", 10).messages(2)) == 2
    assert node.stop() == 0


def test_each_file_is_made_when_it_is_first_needed(daemon):
    """As docs/ondisk.md has it."""
    node = daemon(*LOG)

    def kinds(topic: str) -> list[str]:
        return sorted("id" if path.name.startswith("id.") else path.suffix for path in (node.data_path / f"{topic}.log").glob("*"))

    node.post("/topic/create?topic=t")
    assert kinds("t") == [] and not (node.data_path / "t.log").exists()
    client = node.connect()
    for _ in range(2):
        client.pub("t", b"x")
        assert kinds("t") == [".dat", ".idx", "id"]
    node.post("/topic/empty?topic=t")
    assert kinds("t") == [".dat", ".idx", ".journal", "id"]
    client.pub("u", b"x")
    assert node.stop() == 0
    node.start()
    assert kinds("u") == [".dat", ".idx", "id"]
    node.post("/channel/create?topic=u&channel=c")
    assert kinds("u") == [".dat", ".idx", ".journal", "id"]
    node.connect().ok("DPUB u 3600000", b"x")
    assert kinds("u") == [".dat", ".due", ".idx", ".journal", "id"]
    node.post("/topic/create?topic=v")
    node.post("/channel/create?topic=v&channel=c")
    assert kinds("v") == [".journal", "id"]


@pytest.mark.parametrize("index", [True, False], ids=["", "no index"])
@pytest.mark.parametrize("size", SIZES)
def test_a_record_with_a_hostile_size_costs_only_itself(daemon, size, index):
    """Whether its index entry says better, or the index is gone as well."""
    node = daemon(*LOG)
    client = node.connect()
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    for number in range(9):
        client.pub("t", b"body %d" % number)
    assert node.stop() == 0
    path = node.data_path / "t.log" / f"{0:020d}.dat"
    data = bytearray(path.read_bytes())
    data[4 * 36:4 * 36 + 4] = struct.pack(">i", size)
    path.write_bytes(data)
    if not index:
        path.with_suffix(".idx").unlink()
    node.start()
    consumer = node.connect().sub("t", "c", 100)
    bodies = [consumer.message(60).body for _ in range(8)]
    assert bodies == [b"body %d" % number for number in range(9) if number != 4]
    for offset in (0, 5):
        status, records = node.http("GET", f"/topic/read?topic=t&offset={offset}")
        assert (status, records.count(b"body ")) == (200, 4)
