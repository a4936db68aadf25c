"""kill -9 at random moments: of the consuming process, of the workers of tasks, of the daemon, of the driver with all
its child processes. No message may be lost. None is duplicated either, while the staging directory and the daemon's
files survive and the sink takes each batch once, as Spark's files do. A failure shows the seed.

Slow: Spark is started and killed three times.
"""

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

from tests.spark.conftest import SPARK_SECONDS, address, bodies
from tests.support.daemon import batch, wait_until
from tests.support.ports import kept

ROOT = Path(__file__).parent.parent.parent
SEED = random.randrange(10**6)
ROWS = 20_000
ROUNDS = 2


def publish(daemon, start: int, end: int) -> None:
    client = daemon.connect()
    for at in range(start, end, 500):
        for topic in ("t", "l"):
            client.ok(f"MPUB {topic}", batch(*(b"%06d" % n for n in range(at, min(at + 500, end)))))
    client.close()


def processes(module: str, below: int) -> list[int]:
    """The processes below a process that run a module of pyspark; of pyspark.daemon only its forks for tasks: without
    the daemon itself, Spark's Java cannot continue."""
    parents, words = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):     # it may have ended
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words[pid] = (folder / "cmdline").read_bytes()

    def is_below(pid: int) -> bool:
        while pid > 1 and pid != below:
            pid = parents.get(pid, 0)
        return pid == below

    found = [pid for pid in words if module.encode() in words[pid] and is_below(pid)]
    return found if module != "pyspark.worker" else [pid for pid in found if parents[pid] in found]


class Driver:
    """tests.spark.driver as a process group."""

    def __init__(self, daemon, folder: Path, end: str, local: str):
        self.log = (folder / "driver.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", address(daemon), f"127.0.0.1:{daemon.http_port}", str(folder),
             end, local], cwd=ROOT, start_new_session=True, stdout=self.log, stderr=self.log)

    def kill(self, module: str) -> int:
        """kill -9 of the processes that run that module; returns their number."""
        pids = processes(module, self.process.pid)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def end(self) -> None:
        """kill -9 of everything."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


@pytest.fixture
def driver(tmp_path):
    """driver(daemon, end, local): all are ended with the test."""
    running = []

    def start(daemon, end: str, local: str) -> Driver:
        running.append(Driver(daemon, tmp_path, end, local))
        return running[-1]

    yield start
    for one in running:
        one.end()


@pytest.mark.long
def test_kill_9_of_everything(daemon, driver, tmp_path):
    """All messages are on the daemon's disk, so it loses none; those whose FIN it had not recorded it delivers again,
    under the same ids. Those of the log are read by offset, from its files or from the daemon."""
    print(f"seed {SEED}")
    moments = random.Random(SEED)
    one = daemon("--msg-timeout=1s", "--mem-queue-size=0", "--sync-every=1", kept(), kept("http"))
    assert one.http("PUT", "/topic/rules?topic=l", b'{"storage": "log"}')[0] == 200
    one.post("/topic/create?topic=t")
    one.post("/channel/create?topic=t&channel=c")
    publish(one, 0, ROWS // 2)
    first = driver(one, "never", moments.choice(("true", "false")))
    wait_until(lambda: (tmp_path / "running").exists() and (tmp_path / "running-log").exists(), "the driver",
               SPARK_SECONDS)
    killed = {"consumer": 0, "workers": 0}
    for _ in range(ROUNDS):
        with suppress(AssertionError):      # the driver may be about to restart its queries
            wait_until(lambda: one.channel("t", "c")["client_count"], "a subscription", SPARK_SECONDS)
        time.sleep(moments.uniform(0, 1))
        killed["consumer"] += first.kill("python_streaming_source_runner")
        time.sleep(moments.uniform(0.5, 2))
        one.kill()
        one.start()
    thread = threading.Thread(target=publish, args=(one, ROWS // 2, ROWS))
    thread.start()
    time.sleep(moments.uniform(0, 1))
    # Last: Spark may be unable to start new ones after it. Some exist once a batch has rows.
    killed["workers"] = wait_until(lambda: first.kill("pyspark.worker"), "a worker to kill", SPARK_SECONDS)
    time.sleep(moments.uniform(0, 3))
    first.end()
    thread.join()
    assert killed["consumer"] and killed["workers"], killed
    assert driver(one, "now", moments.choice(("true", "false"))).process.wait(300) == 0, (tmp_path / "driver.log").read_text()[-2000:]
    for name in ("out", "out-log"):
        got = bodies(tmp_path / name)
        assert set(got) == {b"%06d" % n for n in range(ROWS)}, f"{name}: lost"
        assert len(got) == ROWS, f"{name}: doubled"
