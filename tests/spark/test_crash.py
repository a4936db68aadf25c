"""kill -9 at random moments: of the driver, of Spark's workers, of the daemon. Nothing may be lost; what may be doubled
is stated and counted. The seed of the moments is in the failure's output."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.conftest import address, bodies
from tests.spark.test_stream import Flow
from tests.support.daemon import batch, wait_until

ROOT = Path(__file__).parent.parent.parent
SEED = random.randrange(10**6)
ROWS = 30_000


@pytest.fixture
def moments():
    print(f"seed {SEED}")
    return random.Random(SEED)


def publish(daemon, topic: str, start: int, end: int) -> None:
    client = daemon.connect()
    for at in range(start, end, 500):
        client.ok(f"MPUB {topic}", batch(*(b"%06d" % n for n in range(at, min(at + 500, end)))))
    client.close()


def numbered(end: int) -> list[bytes]:
    return [b"%06d" % n for n in range(end)]


def workers(module: str) -> list[int]:
    """Processes below this one that run a module of pyspark; of those under pyspark.daemon only the ones it has forked
    for tasks: without itself, Spark's Java cannot go on."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):     # it may have ended
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if module.encode() in (folder / "cmdline").read_bytes():
                found.append(pid)
    if module == "pyspark.worker":
        found = [pid for pid in found if parents[pid] in found]

    def is_ours(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()
    return [pid for pid in found if is_ours(pid)]


def test_the_driver(daemon, tmp_path, moments):
    """The whole driver and all it has started; the second run drains. Exactly once into Parquet files."""
    one = daemon("--msg-timeout=1s")
    publish(one, "t", 0, ROWS // 3)

    def run(end: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, "-m", "tests.spark.driver", address(one), str(tmp_path), end],
                                cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    driver = run("never")
    wait_until(lambda: (tmp_path / "running").exists(), "the driver", 60)
    thread = threading.Thread(target=publish, args=(one, "t", ROWS // 3, ROWS))
    thread.start()
    time.sleep(moments.uniform(1, 5))
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    thread.join()
    driver = run("now")
    assert driver.wait(90) == 0
    got = bodies(tmp_path / "out")
    assert set(got) == set(numbered(ROWS)), "lost"
    assert len(got) == ROWS, "doubled"


@pytest.fixture
def flow(spark, tmp_path, topic, daemon):
    yield lambda *daemons, **more: Flow(spark, tmp_path, topic, *daemons, **more)
    for query in spark.streams.active:
        query.stop()


def test_the_planner_process(flow, daemon, moments):
    """The process that consumes and stages dies at random moments; the query fails and is started again."""
    one = daemon("--msg-timeout=1s")
    run = flow(one, maxRowsPerBatch="2000", maxInFlight="200", idleMs="1300")
    one.post(f"/topic/create?topic={run.topic}")
    one.post(f"/channel/create?topic={run.topic}&channel=c")
    thread = threading.Thread(target=publish, args=(one, run.topic, 0, ROWS))
    thread.start()
    for _ in range(3):
        query = run.start()
        # Before it consumes there is nothing to lose, and Spark waits for it long.
        wait_until(lambda query=query: run.channel()["client_count"] or query.exception(), "the subscription", 30)
        time.sleep(moments.uniform(0, 1.5))
        pids = workers("python_streaming_source_runner")
        assert pids, query.exception()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda query=query: not query.isActive, "the failure", 30)
    thread.join()
    run.drain()
    assert set(run.got()) == set(numbered(ROWS)), "lost"
    assert len(run.got()) == ROWS, "doubled"


def test_the_daemon_and_executors(flow, daemon, moments):
    """The daemon is killed and started while the query runs, and so are the workers of tasks. All messages are on the
    daemon's disk, so it loses none; those whose FIN it had not noted are delivered again under the same ids."""
    one = daemon("--msg-timeout=1s", "--mem-queue-size=0", "--sync-every=1")
    port = one.tcp_port
    run = flow(one, maxRowsPerBatch="2000", maxInFlight="200", idleMs="1300")
    one.post(f"/topic/create?topic={run.topic}")
    one.post(f"/channel/create?topic={run.topic}&channel=c")
    publish(one, run.topic, 0, ROWS)
    wait_until(lambda: one.channel(run.topic, "c")["depth"] == ROWS, "the channel's files")
    query = run.start()
    for _ in range(3):
        time.sleep(moments.uniform(0.2, 1.2))
        one.kill()
        for pid in workers("pyspark.daemon"):
            os.kill(pid, signal.SIGKILL)
        one.start(f"--tcp-address=127.0.0.1:{port}")
        if not query.isActive:      # Spark does not survive the death of a worker that it just starts
            query = run.start()
    wait_until(lambda: len(set(run.got())) == ROWS or not query.isActive, "all rows", 60)
    if not query.isActive:
        run.drain()
    query.stop()
    assert set(run.got()) == set(numbered(ROWS)), "lost"
    assert len(run.got()) == ROWS, "doubled"
