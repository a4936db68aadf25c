"""Names of a log's files, and of its folder, are on disk when what relies on them is.

A broker works under the shim and is killed at the moment in question, with nothing beside it that happens to sync a
folder. The disk then has all that was synced, and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from nsqc.store.log.due import read_due
from nsqc.store.log.progress import read_progress
from tests.support.power.disk import Chance, Disk
from tests.support.power.trace import Trace

SCRIPT = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.broker import harness
from tests.broker.harness import publish, run, until

class Disks(harness.DiskQueues):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        Disks.syncer = self.syncer

harness.DiskQueues = Disks

async def deferred(topic, body):
    assert topic.publish(body, 3_600_000) < 0
    written = asyncio.get_running_loop().create_future()
    topic.when_written(written.set_result)
    assert await written == 0

async def recorded(topic):
    await until(lambda: topic.log.recorder.at > 0 and not topic.log.busy)

async def synced(topic):
    Disks.syncer.start(topic.log)
    await Disks.syncer.synced(topic.log)
    assert not Disks.syncer.failing

async def scenario(broker):
    topic = broker.get_topic(b"t")
    topic.start()
%s
    os.kill(os.getpid(), signal.SIGKILL)

run(Path(sys.argv[1]), scenario, topic_storage="log", log_sync=sys.argv[2])
"""


class Machine:
    """A data path, and brokers that work on it one after the other."""

    def __init__(self, tmp_path: Path):
        self.folder = tmp_path / "data"
        self.folder.mkdir()
        self.disk_path = tmp_path / "disk"
        self.trace = Trace(tmp_path / "trace", self.folder)

    def run(self, sync: str, steps: str) -> None:
        """Runs steps, which know `topic`, up to a kill behind the last one."""
        script = SCRIPT % textwrap.indent(textwrap.dedent(steps), "    ")
        done = subprocess.run([sys.executable, "-c", script, str(self.folder), sync], env=self.trace.environment(),
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == -9, done.stderr

    def disk(self) -> Path:
        """The log's folder after a power failure."""
        disk = Disk()
        disk.play(self.trace.events())
        disk.write(self.disk_path, Chance())
        return self.disk_path / "t.log"


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.trace.close()


def test_a_folder_that_the_journal_has_made(machine):
    machine.run("fsync", """
        topic.get_channel(b"c")
        await recorded(topic)
        assert await publish(topic, b"acknowledged") == 0
    """)
    assert b"acknowledged" in (machine.disk() / f"{0:020}.dat").read_bytes()


def test_a_folder_that_a_killed_run_has_made(machine):
    machine.run("fsync", """
        topic.get_channel(b"c")
        await recorded(topic)
    """)
    machine.run("fsync", 'assert await publish(topic, b"acknowledged") == 0')
    assert b"acknowledged" in (machine.disk() / f"{0:020}.dat").read_bytes()


def test_a_new_journal_is_part_of_the_next_sync(machine):
    machine.run("write", """
        topic.get_channel(b"c")
        for number in range(5):
            assert await publish(topic, b"%d" % number) == 0
        await recorded(topic)
        await synced(topic)
    """)
    machine.run("write", """
        topic.get_channel(b"c").empty()
        await recorded(topic)
        await synced(topic)
    """)
    channel, = read_progress(str(machine.disk())).channels
    assert (channel.name, channel.cursor) == ("c", 5)


def test_a_journal_without_messages_is_part_of_the_next_sync(machine):
    machine.run("write", """
        topic.get_channel(b"c")
        await recorded(topic)
        await synced(topic)
    """)
    assert [channel.name for channel in read_progress(str(machine.disk())).channels] == ["c"]


def test_what_a_killed_run_has_made_is_part_of_the_next_sync(machine):
    """Its journal has its name only in memory when it is killed."""
    machine.run("write", 'assert await publish(topic, b"x") == 0')
    machine.run("write", """
        topic.get_channel(b"c")
        await recorded(topic)
    """)
    machine.run("write", """
        assert await publish(topic, b"y") == 0
        await synced(topic)
    """)
    assert [channel.name for channel in read_progress(str(machine.disk())).channels] == ["c"]


def test_new_due_times_are_part_of_the_next_sync(machine):
    machine.run("write", """
        assert await publish(topic, b"x") == 0
        await synced(topic)
        await deferred(topic, b"y")
        await synced(topic)
    """)
    assert [offset for offset, _ in read_due(str(machine.disk() / f"{0:020}.due")).entries] == [1]


def test_due_times_that_began_without_syncs(machine):
    machine.run("write", """
        assert await publish(topic, b"x") == 0
        await deferred(topic, b"y")
    """)
    machine.run("fsync", 'await deferred(topic, b"z")')
    assert [offset for offset, _ in read_due(str(machine.disk() / f"{0:020}.due")).entries] == [1, 2]
