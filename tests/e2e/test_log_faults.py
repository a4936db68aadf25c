"""A log on a full or failing disk: publishes are refused with the reason, no acknowledged message is lost, and it
recovers."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nsqc.store.log.names import FRAMES_AT
from perf.programs import program
from tests.support.counting import consume, consume_all, numbered
from tests.support.daemon import Daemon, batch, wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.power.disk import Chance, Disk, Some, other_boot
from tests.support.power.trace import Trace
from tests.support.publishing import Books, Publishers

LOG = ("--topic-storage=log", "--max-bytes-per-file=20000")
ALWAYS = 1 << 40


SLOW_JOURNAL = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static ssize_t slow(int fd, const void *data, size_t size, off_t at) {
    char name[64], path[4096] = "";
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    if (readlink(name, path, sizeof(path) - 1) > 0 && strstr(path, "/cursors."))
        usleep(100000);
    return syscall(SYS_pwrite64, fd, data, size, at);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return slow(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) { return slow(fd, data, size, at); }
"""


@pytest.fixture
def traced(daemon, tmp_path):
    """Starts a daemon under the shim, which makes calls fail: returns node and trace. Its topic t has the channel c."""
    traces = []

    def start(*flags: str) -> tuple[Daemon, Trace]:
        data = tmp_path / "traced"
        data.mkdir()
        traces.append(Trace(tmp_path / "trace", data))
        node = daemon(*LOG, *flags, data_path=data, env=traces[0].environment())
        node.post("/topic/create?topic=t")
        node.post("/channel/create?topic=t&channel=c")
        return node, traces[0]

    yield start
    for trace in traces:
        trace.close()


def settled(node: Daemon) -> None:
    """Waits until the files of the log have stopped growing."""
    def sizes() -> list[int]:
        return [path.stat().st_size for path in sorted((node.data_path / "t.log").iterdir())]

    def is_quiet() -> bool:
        before = sizes()
        time.sleep(0.3)
        return sizes() == before

    wait_until(is_quiet, "the end of writing")


def refused(node: Daemon, reason: str, body: bytes = b"refused") -> None:
    """Every way to publish is refused, with the reason; over TCP the connection then ends."""
    for line, sent in (("PUB t", body), ("MPUB t", batch(body, body)), ("DPUB t 1", body)):
        client = node.connect()
        client.command(line, sent)
        kind, text = client.frame()
        assert kind == 1 and text.startswith(b"E_" + line.split()[0].encode() + b"_FAILED"), text
        assert reason.encode() in text, text
    for path in ("/pub?topic=t", "/mpub?topic=t"):
        status, text = node.http("POST", path, body + b"\n" + body)
        assert status == 503 and reason in text.decode(), (status, text)


def kept(node: Daemon, bodies: set[bytes]) -> None:
    """The channel delivers these, each once, and nothing else."""
    counts = consume(node, "t", "c", bodies)
    counts += consume(node, "t", "c", set(), seconds=0.2)
    assert counts.keys() == bodies
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("sync", ["write", "fsync"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_writes_that_fail(traced, sync, error):
    node, trace = traced(f"--log-sync={sync}")
    node.connect().pub("t", b"before")
    trace.fail("write", error, times=ALWAYS)
    refused(node, os.strerror(error))
    assert node.http("GET", "/ping")[0] == 500
    trace.fail("write", times=0)
    wait_until(lambda: node.http("GET", "/ping")[0] == 200, "the daemon to heal")
    node.connect().pub("t", b"after")
    node.kill()
    node.start()
    kept(node, {b"before", b"after"})


def test_a_write_that_fails_in_the_middle_of_a_batch_leaves_nothing_of_it(traced):
    """Each of the writes of a publish fails once, then the next batch succeeds."""
    node, trace = traced("--log-sync=write")
    good = set()
    for number in range(40):
        client = node.connect()
        trace.fail("write", errno.ENOSPC, skip=number % 3)
        client.command("MPUB t", batch(b"maybe%d" % number, b"x" * 5000, b"more%d" % number))
        kind, text = client.frame()
        trace.fail("write", times=0)
        if kind == 0:
            good |= {b"maybe%d" % number, b"more%d" % number}
        else:
            assert text.startswith(b"E_MPUB_FAILED"), text
        wait_until(lambda: node.http("GET", "/ping")[0] == 200, "the daemon to heal")
        node.connect().pub("t", b"fine%d" % number)
        good.add(b"fine%d" % number)
    assert len(good) < 3 * 40
    node.kill()
    node.start()
    counts = consume(node, "t", "c", good) + consume(node, "t", "c", set(), seconds=0.2)
    assert counts.keys() - {b"x" * 5000} == good


def test_what_is_finished_while_the_journal_cannot_be_written_is_delivered_on(traced):
    """Consumers continue. Their progress is written once that is possible."""
    node, trace = traced("--log-sync=write")
    client = node.connect()
    client.pub("t", *(b"%d" % number for number in range(20)))
    consumer = node.connect().sub("t", "c", 5)
    trace.fail("write", errno.ENOSPC, times=ALWAYS)
    bodies = {message.body for message in consumer.messages(20, finish=True)}
    assert bodies == {b"%d" % number for number in range(20)}
    wait_until(lambda: node.channel("t", "c")["depth"] + node.channel("t", "c")["in_flight_count"] == 0)
    trace.fail("write", times=0)
    client.pub("t", b"after")
    consumer.fin(consumer.message())
    wait_until(lambda: node.http("GET", "/ping")[0] == 200 and node.channel("t", "c")["in_flight_count"] == 0)
    node.post("/topic/create?topic=other")      # one more loop iteration has ended
    node.kill()
    node.start()
    assert node.channel("t", "c")["depth"] == 0


@pytest.mark.parametrize("skip", [0, 1, 2, 5, 11])
def test_a_sync_that_failed_is_never_believed(traced, daemon, tmp_path, skip):
    """The kernel has dropped the pages that it could not write: they must be rewritten before a later sync counts."""
    node, trace = traced("--log-sync=fsync")
    books = Books(lambda: trace.position)
    with Publishers(node, books, "t", ("pub", "mpub", "http"), seed=skip):
        wait_until(lambda: len(books.acknowledged) > 20)
        failed = trace.failed("sync")
        trace.fail("sync", errno.EIO, skip=skip, times=2)
        wait_until(lambda: trace.failed("sync") == failed + 2, "syncs to fail")
        count = len(books.acknowledged)
        wait_until(lambda: len(books.acknowledged) > count + 20, "publishes to be accepted again")
        node.kill()
    assert all(b"_FAILED" in text or b"nput/output" in text for text in books.refused), books.refused[:3]
    acknowledged = {body for batch in books.acknowledged for body in batch.bodies}
    disk = Disk()
    disk.play(trace.events())
    for number, chance in enumerate((Chance(), Some(skip))):
        disk.write(tmp_path / f"disk{number}", chance)
        other_boot(tmp_path / f"disk{number}")
        after = daemon(*LOG, "--log-sync=fsync", data_path=tmp_path / f"disk{number}")
        there = consume_all(after, "t", "c", acknowledged)
        assert acknowledged <= there, f"{len(acknowledged - there)} of {len(acknowledged)} are missing"
        books.check(there)


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_sync_of_what_came_before_that_failed_is_never_believed(traced, daemon, tmp_path, skip):
    """The first publish under fsync syncs the earlier ones."""
    node, trace = traced("--log-sync=write", "--sync-timeout=1h", "--sync-every=1000000")
    client, sent = node.connect(), {b"%d-" % number + b"x" * 1000 for number in range(60)}
    client.pub("t", *sent)
    for body in sorted(sent)[:3]:
        client.pub("t", body + b"again")
    assert node.http("PUT", "/topic/rules?topic=t", b'{"sync": "fsync"}')[0] == 200
    trace.fail("sync", errno.EIO, skip=skip, times=2)
    tries = 0
    while node.http("POST", "/pub?topic=t", b"sure")[0] != 200:
        tries += 1
    assert tries, "nothing has failed"
    node.kill()
    disk = Disk()
    disk.play(trace.events())
    disk.write(tmp_path / "disk", Chance())
    other_boot(tmp_path / "disk")
    after = daemon(*LOG, data_path=tmp_path / "disk")
    there = consume(after, "t", "c", sent | {b"sure"})
    assert sent | {b"sure"} <= there.keys(), f"{len(sent - there.keys())} of {len(sent)} are missing"
    assert there[b"sure"] == 1


def test_syncs_that_fail_refuse_publishes_and_heal(traced):
    node, trace = traced("--log-sync=fsync")
    node.connect().pub("t", b"before")
    trace.fail("sync", errno.EIO, times=ALWAYS)
    refused(node, os.strerror(errno.EIO))
    assert node.http("GET", "/ping")[0] == 500
    trace.fail("sync", times=0)
    wait_until(lambda: node.http("GET", "/ping")[0] == 200, "the daemon to heal")
    node.connect().pub("t", b"after")
    counts = consume(node, "t", "c", {b"before", b"after"})
    assert {b"before", b"after"} <= counts.keys()


@pytest.mark.parametrize("threads", [3, 4, 6])
def test_the_system_has_few_threads_to_give(daemon, threads):
    """If no thread can sync, the loop does it; if one can, it syncs both files."""
    shim = program("no-thread.so", [Path(__file__).parent.parent / "support" / "nothread.c"], "-shared", "-fPIC", "-ldl")
    node = daemon(*LOG, "--log-sync=fsync", env={**os.environ, "LD_PRELOAD": str(shim), "NSQC_TEST_THREADS": str(threads)})
    bodies = {topic: {b"%d" % number for number in range(100)} for topic in ("t", "u", "v")}
    for topic in bodies:
        node.post(f"/topic/create?topic={topic}")
        node.post(f"/channel/create?topic={topic}&channel=c")
    with ThreadPoolExecutor(8) as callers:
        list(callers.map(lambda job: node.connect().pub(*job), [(t, body) for t in bodies for body in bodies[t]]))
    node.kill()
    node.start()
    for topic, sent in bodies.items():
        assert consume(node, topic, "c", sent).keys() == sent


@pytest.mark.parametrize("times", [1, 2])
def test_reads_that_fail_for_a_while(traced, times):
    node, trace = traced("--log-sync=write")
    bodies = {b"%d" % number for number in range(3000)}
    node.connect().pub("t", *bodies)
    node.restart()
    trace.fail("read", errno.EIO, times=times)
    kept(node, bodies)
    assert trace.failed("read") == times


@pytest.fixture
def small(tmp_path):
    """A file system of 3 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", path], check=True)
    yield path
    subprocess.run(["umount", path], check=True)


def test_a_full_disk(small, daemon):
    """Consumers drain it again."""
    node = daemon(*LOG, "--min-free-disk=0", "--max-rdy-count=100000", data_path=small)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    client, good = node.connect(), set()
    for number in range(10_000):
        body = b"%d-" % number + b"x" * 2000
        client.command("PUB t", body)
        kind, text = client.frame()
        if kind:
            break
        good.add(body)
    assert text.startswith(b"E_PUB_FAILED") and b"No space left" in text
    assert len(good) > 1000
    refused(node, "No space left", b"x" * 5000)
    assert good <= consume(node, "t", "c", good).keys()
    wait_until(lambda: json.loads(node.http("GET", "/topic/log?topic=t")[1])["segments"] == 1, "segments to go")
    wait_until(lambda: node.http("GET", "/ping")[0] == 200, "the daemon to heal")
    node.connect().pub("t", b"after")
    assert b"after" in consume(node, "t", "c", {b"after"})
    assert node.stop() == 0


@pytest.mark.parametrize("deleted", ["topic", "channel"])
def test_deletes_while_the_journal_is_slow(daemon, tmp_path, deleted):
    """They are answered, and so is a seek that waits for the journal at that moment."""
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW_JOURNAL)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    node = daemon(*LOG, env={**os.environ, "LD_PRELOAD": str(library)})
    for number in range(3):
        node.post("/topic/create?topic=t")
        node.post("/channel/create?topic=t&channel=c")
        node.connect().pub("t", *(b"%d" % number for number in range(20)))
        consumer = node.connect().sub("t", "c", 20)
        for message in consumer.messages(20):
            consumer.fin(message)
        with ThreadPoolExecutor(2) as pool:
            seek = pool.submit(node.http, "POST", "/channel/seek?topic=t&channel=c&to=beginning")
            time.sleep(number * 0.04)
            delete = pool.submit(node.http, "POST", f"/{deleted}/delete?topic=t&channel=c")
            assert delete.result(WAIT_SECONDS)[0] == 200
            assert seek.result(WAIT_SECONDS)[0] in (200, 404)
    assert node.stop() == 0


@pytest.mark.parametrize("call", ["empty?", "seek?to=end&"])
def test_a_move_that_the_disk_refuses_says_so_and_is_final_once_it_is_written(traced, call):
    node, trace = traced()
    node.publish("t", *numbered(5))
    trace.fail("write", errno.EROFS, times=ALWAYS)
    status, text = node.http("POST", f"/channel/{call}topic=t&channel=c")
    assert (status, text) == (503, b'{"message":"FAILED - Read-only file system"}')
    trace.fail("write", times=0)
    wait_until(lambda: node.http("GET", "/ping") == (200, b"OK"), "the daemon to be well")
    node.kill()
    node.start()
    assert node.channel("t", "c")["depth"] == 0


def test_a_segment_that_a_kill_left_empty(daemon):
    """The next start's first segment has the same name: retention, which needs the empty one no more, must not remove it."""
    node = daemon(*LOG, "--log-sync=write")
    bodies = {b"%d" % number for number in range(100)}
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.connect().pub("t", b"gone")
    node.kill()
    os.truncate(node.data_path / "t.log" / f"{0:020d}.log", FRAMES_AT)
    node.start()
    node.connect().pub("t", *bodies)
    assert node.http("PUT", "/topic/rules?topic=t", b'{"retain_time": "1s"}')[0] == 200      # retention looks at once
    time.sleep(0.2)     # it removes files on a thread
    node.kill()
    node.start()
    assert consume(node, "t", "c", bodies).keys() == bodies
