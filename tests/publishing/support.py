"""Publishes with ids, as tests send and count them."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

from perf.programs import program
from tests.support.daemon import Client, Daemon

RULE = "10m"

# While FAIL exists beside the library, writes to log segments fail; while SLOW does, they take a while.
SHIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static ssize_t write_at(int fd, const void *data, size_t size, off_t at) {
    char name[64], path[4096] = "";
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    if (readlink(name, path, sizeof(path) - 1) > 0 && strstr(path, "t.log/") && !strstr(path, "cursors")
            && !strstr(path, "ids.")) {
        if (access(FOLDER "/FAIL", F_OK) == 0) { errno = EIO; return -1; }
        if (access(FOLDER "/SLOW", F_OK) == 0) usleep(300000);
    }
    return syscall(SYS_pwrite64, fd, data, size, at);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return write_at(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) { return write_at(fd, data, size, at); }
"""


def shim(folder: Path) -> Path:
    """The library to preload."""
    source = folder / "shim.c"
    source.write_text(SHIM)
    return program(f"ids-{folder.name}.so", [source], "-shared", "-fPIC", f'-DFOLDER="{folder}"')


def remember(node: Daemon, topic: str = "t", **changes: object) -> dict:
    """PUT /topic/rules with dedupe, which must succeed; the new rule."""
    status, answer = node.http("PUT", f"/topic/rules?topic={topic}", json.dumps({"dedupe": RULE, **changes}).encode())
    assert status == 200, answer
    return json.loads(answer)


def publisher(node: Daemon, **more: object) -> Client:
    """A client that gives its publishes ids."""
    client = node.connect()
    client.command("IDENTIFY", json.dumps(
        {"feature_negotiation": True, "publish_ids": True, "deferred_batches": True, **more}).encode())
    kind, answer = client.frame()
    assert kind == 0 and json.loads(answer)["publish_ids"] is True, answer
    return client


def post(node: Daemon, path: str, body: bytes, publish_id: str | None = None, token: str | None = None,
         ) -> tuple[int, bytes]:
    """Status and body of one call."""
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=60)
    headers = {} if publish_id is None else {"X-NSQ-Publish-Id": publish_id}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def stored(node: Daemon, topic: str = "t") -> int:
    """Messages that the topic has accepted since the start."""
    return node.stats(topic)["message_count"]


def drained(node: Daemon, topic: str = "t", channel: str = "c", count: int = 0) -> list[bytes]:
    """The bodies of this many messages, finished; fails if more exist."""
    client = node.connect().sub(topic, channel, 2000)
    bodies = [message.body for message in client.messages(count, finish=True)]
    assert client.quiet(0.2)
    client.close()
    return bodies
