"""A machine whose power fails: brokers work on its data path under the shim, one after the other, and are killed at the
moment in question, with no other process that might sync. Its disk then has the synced data."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from nsqc.store.log.manager import Looks
from nsqc.store.log.recovery import Opened
from tests.store.log.segments import read_bodies
from tests.support.patience import WAIT_SECONDS
from tests.support.power.disk import Chance, Disk
from tests.support.power.trace import Trace

SCRIPT = """
import asyncio, os, signal, sys
import msgspec
from pathlib import Path
from tests.broker import harness
from tests.broker.harness import publish, run, until

class Disks(harness.DiskQueues):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        Disks.syncer = self.syncer

harness.DiskQueues = Disks

def by_rule(topic, **values):
    topic.set_rule(msgspec.structs.replace(topic.rule, **values))

async def deferred(topic, body):
    assert topic.publish(body, 3_600_000) < 0
    written = asyncio.get_running_loop().create_future()
    topic.when_written(written.set_result)
    assert await written == 0

async def several(topic, count):
    for _ in range(count):
        assert await publish(topic, b"x" * 100) == 0

async def due():
    Disks.syncer.timeout_ns = 0
    while Disks.syncer.tick():
        pass
    await Disks.syncer.settle()
    assert not Disks.syncer.failing

async def recorded(topic):
    written = asyncio.get_running_loop().create_future()
    topic.log.recorder.when_written(lambda: written.set_result(None))
    await written
    await until(lambda: topic.log.recorder.paths and not topic.log.busy)

async def synced(topic):
    Disks.syncer.start(topic.log)
    await Disks.syncer.synced(topic.log)
    assert not Disks.syncer.failing

async def scenario(broker):
    topic = broker.get_topic(b"t")
    topic.start()
%s
    os.kill(os.getpid(), signal.SIGKILL)

run(Path(sys.argv[1]), scenario, topic_storage="log", log_sync=sys.argv[2], max_bytes_per_file=int(sys.argv[3]))
"""


class Machine:
    """A data path, and brokers that work on it one after the other."""

    def __init__(self, tmp_path: Path):
        self.folder = tmp_path / "data"
        self.folder.mkdir()
        self.disk_path = tmp_path / "disk"
        self.trace = Trace(tmp_path / "trace", self.folder)

    def run(self, sync: str, steps: str, segment: int = 1 << 20) -> None:
        """Runs steps, which know `topic`, up to a kill after the last one. segment: --max-bytes-per-file."""
        script = SCRIPT % textwrap.indent(textwrap.dedent(steps), "    ")
        done = subprocess.run([sys.executable, "-c", script, str(self.folder), sync, str(segment)],
                              env=self.trace.environment(), capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert done.returncode == -9, done.stderr

    def start(self) -> Opened:
        """The state that a start finds after a power failure."""
        folder = str(self.disk())
        return Looks([folder], True).take(folder)

    def offsets(self) -> list[int]:
        """The messages that it finds."""
        found = self.start()
        return sorted(read_bodies(self.disk_path / "t.log", found))

    def deferred(self) -> list[int]:
        """Those whose time has not come."""
        return [offset for offset, _ in self.start().delays]

    def disk(self) -> Path:
        """The log's folder after a power failure."""
        disk = Disk()
        disk.play(self.trace.events())
        disk.write(self.disk_path, Chance())
        return self.disk_path / "t.log"
