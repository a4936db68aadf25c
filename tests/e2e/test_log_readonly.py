"""A disk that turns read-only for a moment: requests made meanwhile are refused and have no later effect."""

from __future__ import annotations

import os
import struct
import subprocess

import pytest

from tests.support.counting import consume_all
from tests.support.daemon import wait_until

SHIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int refused(void) {
    if (access(getenv("READ_ONLY"), F_OK)) return 0;
    errno = EROFS;
    return 1;
}
int unlink(const char *path) { return refused() ? -1 : (int)syscall(SYS_unlink, path); }
int rename(const char *from, const char *to) { return refused() ? -1 : (int)syscall(SYS_rename, from, to); }
int fdatasync(int fd) {
    char name[64], path[4096] = "";
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    if (readlink(name, path, sizeof(path) - 1) > 0 && strstr(path, ".log/") && !strstr(path, "/00000000000000000000.")
        && refused())
        return -1;
    return (int)syscall(SYS_fdatasync, fd);
}
"""


@pytest.fixture
def shim(tmp_path):
    """An environment, and the file that makes the disk read-only while it exists."""
    source, library, switch = (tmp_path / name for name in ("shim.c", "shim.so", "read-only"))
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return {**os.environ, "LD_PRELOAD": str(library), "READ_ONLY": str(switch)}, switch


@pytest.mark.parametrize("ended", ["kill", "stop"])
def test_a_segment_that_was_begun_by_a_refused_publish_hides_nothing_that_is_accepted_later(daemon, shim, ended):
    environment, switch = shim
    node = daemon("--topic-storage=log", "--log-sync=fsync", "--max-bytes-per-file=1000", env=environment)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    accepted = [b"%d" % number + b"." * 99 for number in range(7)]      # 910 bytes: one more small one fits
    client = node.connect()
    for body in accepted:
        client.ok("PUB t", body)
    switch.touch()
    refused = b"refused" + b"." * 40, b"refused" + b"." * 90
    client.send(b"".join(b"PUB t\n" + struct.pack(">i", len(body)) + body for body in refused))
    assert client.frame()[1].startswith(b"E_PUB_FAILED")
    switch.unlink()
    client = node.connect()
    for number in range(5):
        client.ok("PUB t", b"later %d" % number)
        accepted.append(b"later %d" % number)
    if ended == "kill":
        node.kill()
    else:
        assert node.stop() == 0
    node.start()
    assert consume_all(node, "t", "c", set(accepted)) == set(accepted)


@pytest.mark.parametrize("what", ["topic", "channel"])
def test_a_delete_that_the_disk_refuses_says_so_and_is_final_once_it_is_tried_again(daemon, shim, what):
    environment, switch = shim
    node = daemon("--topic-storage=log", env=environment)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.connect().ok("PUB t", b"body")
    switch.touch()
    status, text = node.http("POST", f"/{what}/delete?topic=t&channel=c")
    assert (status, text) == (503, b'{"message":"FAILED - Read-only file system"}')
    switch.unlink()
    if what == "topic":
        wait_until(lambda: not any(node.data_path.glob("t.log*")), "the folder to be gone")
    wait_until(lambda: (b'"t"' if what == "topic" else b'"c"') not in (node.data_path / "nsqd.dat").read_bytes())
    node.kill()
    node.start()
    assert [topic["topic_name"] for topic in node.stats()["topics"]] == ([] if what == "topic" else ["t"])
    if what == "channel":
        assert node.stats("t")["channels"] == []
