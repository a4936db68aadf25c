"""A clock that jumps: a deferred message in a log waits for one delay at most, wherever the clock was; ids rise."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.counting import consume
from tests.support.daemon import wait_until

SHIFTED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += atol(getenv("SHIFTED_S"));
    return answer;
}
"""
YEARS_S = 10 * 365 * 86400


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """A library that shifts the clock by $SHIFTED_S."""
    folder = tmp_path_factory.mktemp("clock")
    (folder / "shifted.c").write_text(SHIFTED)
    subprocess.run([*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-o", folder / "shifted.so",
                    folder / "shifted.c", "-ldl"], check=True)
    return folder / "shifted.so"


@pytest.mark.parametrize("before_s, after_s", [(YEARS_S, 0), (0, -YEARS_S)], ids=["ahead", "back"])
def test_delays_after_the_clock_has_jumped(daemon, shim, before_s, after_s):
    """A DPUB that no consumer has received, a DPUB that one has, and a REQ."""
    environment = {**os.environ, "LD_PRELOAD": str(shim)}
    node = daemon("--topic-storage=log", "--max-req-timeout=1s", env={**environment, "SHIFTED_S": str(before_s)})
    for topic in ("unseen", "seen", "requeued"):
        node.post(f"/topic/create?topic={topic}")
        node.post(f"/channel/create?topic={topic}&channel=c")
    client = node.connect().sub("seen", "c", 1)
    other = node.connect().sub("requeued", "c", 1)
    node.connect().pub("requeued", b"m")
    message = other.message()
    for topic in ("unseen", "seen"):
        node.post(f"/pub?topic={topic}&defer=900", b"m")
    other.command(f"REQ {message.id.decode()} 1000")
    wait_until(lambda: all(node.channel(topic, "c")["deferred_count"] for topic in ("unseen", "seen", "requeued")))
    client.close()
    node.kill()
    node.popen["env"] = {**environment, "SHIFTED_S": str(after_s)}
    for _ in range(2):          # the second start reads the files written by the first
        node.start()
        node.kill()
    node.start()
    for topic in ("unseen", "seen", "requeued"):
        assert consume(node, topic, "c", {b"m"}) == {b"m": 1}


@pytest.mark.parametrize("flag", ["--topic-storage=log", "--mem-queue-size=0"])
def test_ids_rise_when_the_clock_is_set_back(daemon, shim, flag):
    """Over kills and a stop."""
    environment = {**os.environ, "LD_PRELOAD": str(shim)}
    node = daemon(flag, env={**environment, "SHIFTED_S": str(YEARS_S)})
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    for number in range(4):
        node.post("/pub?topic=t", b"%d" % number)
        if number == 2:
            assert node.stop() == 0
        else:
            node.kill()
        node.popen["env"] = {**environment, "SHIFTED_S": str(-number)}
        node.start()
    messages = node.connect().sub("t", "c", 10).messages(4)
    assert [message.body for message in sorted(messages, key=lambda message: message.id)] == [b"0", b"1", b"2", b"3"]
