"""--min-free-disk: the threshold, the publishes that it refuses, and an unresponsive file system."""

import asyncio
import os
import threading

import pytest

from nsqc.broker import health as space_module
from nsqc.broker.health import DEFAULT_BYTES, SpaceWatch
from nsqc.broker.topic import NO_SPACE
from nsqc.store.work import DiskSpace
from tests.broker.harness import Lines, publish, run, until

MIB = 1 << 20


class FileSystem:
    """A fake file system: reports an amount, raises an error, or blocks for a while."""

    def __init__(self, free, size=1 << 40):
        self.free, self.size, self.error, self.asked = free, size, None, 0
        self.answers = threading.Event()
        self.answers.set()

    def __call__(self, path):
        self.asked += 1
        self.answers.wait()
        if self.error is not None:
            raise self.error
        return os.statvfs_result((4096, 4096, self.size // 4096, 0, self.free // 4096, 0, 0, 0, 0, 255))


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Checks twenty times as often as a daemon."""
    monkeypatch.setattr(space_module, "CHECK_SPACE_S", space_module.CHECK_SPACE_S / 20)
    monkeypatch.setattr(space_module, "LOW_EVERY_S", space_module.LOW_EVERY_S / 20)


def watch(tmp_path, limit, system, scenario):
    """Runs scenario(watch, space, log) with a watch that has checked once."""

    async def main():
        space, log = DiskSpace(), Lines()
        watch = SpaceWatch(asyncio.get_running_loop(), str(tmp_path), space, limit, log, system)
        watch.start()
        try:
            await until(lambda: limit == 0 or not system.answers.is_set() or space.trusted < 2**63 - 1 or space.low
                        or system.error)
            await scenario(watch, space, log)
        finally:
            system.answers.set()
            watch.close()

    asyncio.run(main())


def wrote(space, size):
    """Called as the disk queues call it."""
    space.unseen += size
    if space.unseen >= space.trusted:
        space.look()


# ---------------------------------------------------------------------- low space


@pytest.mark.parametrize(("limit", "size", "kept"), [
    (-1, 1 << 40, DEFAULT_BYTES), (-1, 100 * MIB, 5 * MIB), (3 * MIB, 1 << 40, 3 * MIB)])
def test_the_limit(tmp_path, limit, size, kept):
    system = FileSystem(kept + 4096, size)

    async def scenario(watch, space, log):
        assert not space.low and watch.reason() is None
        system.free = kept - 4096
        await until(lambda: space.low)
        assert watch.reason() == f"no space left: less than {kept} bytes are free (--min-free-disk)"
        system.free = kept + 4096       # not enough to count as recovered
        asked = system.asked
        await until(lambda: system.asked > asked + 2)
        assert space.low
        system.free = 2 * kept
        await until(lambda: not space.low)
        assert watch.reason() is None
        assert [line.partition(" - ")[0] for line in log.lines] == [
            "DISKSPACE: publishes that need the disk are refused", "DISKSPACE: publishes are accepted again"]

    watch(tmp_path, limit, system, scenario)


def test_without_a_limit_nobody_asks(tmp_path):
    system = FileSystem(0)

    async def scenario(watch, space, log):
        wrote(space, 1 << 50)
        await asyncio.sleep(0)
        assert not space.low and system.asked == 0
        watch.set_limit(5 * MIB)
        await until(lambda: space.low)
        watch.set_limit(0)
        assert not space.low

    watch(tmp_path, 0, system, scenario)


def test_the_more_is_written_the_sooner_it_asks(tmp_path, monkeypatch):
    monkeypatch.setattr(space_module, "CHECK_SPACE_S", 3600)      # so only written bytes trigger a check
    system = FileSystem(1000 * MIB)

    async def scenario(watch, space, log):
        while not space.low:
            wrote(space, MIB)
            system.free -= MIB
            while watch._asked_at:
                await asyncio.sleep(0.0001)
        assert 90 * MIB <= system.free < 100 * MIB + 4096
        assert 3 < system.asked < 200

    watch(tmp_path, 100 * MIB, system, scenario)


def test_a_silent_file_system_holds_up_nothing(tmp_path):
    """Bytes written since the last check count against its result."""
    system = FileSystem(1000 * MIB)

    async def scenario(watch, space, log):
        system.answers.clear()
        wrote(space, 500 * MIB)
        asked = system.asked
        wrote(space, 399 * MIB)
        assert not space.low
        wrote(space, MIB)
        assert space.low
        assert (f"{1000 * MIB} bytes were free in {tmp_path} when the file system last answered, {900 * MIB} were written since, "
                f"--min-free-disk is {100 * MIB}") in log.lines[-1]
        for _ in range(3):
            wrote(space, MIB)
        assert system.asked <= asked + 1
        system.answers.set()
        await until(lambda: not space.low)

    watch(tmp_path, 100 * MIB, system, scenario)


def test_a_watch_whose_file_system_is_silent_can_be_closed(tmp_path):
    system = FileSystem(1000 * MIB)
    system.answers.clear()

    async def scenario(watch, space, log):
        await until(lambda: system.asked == 1)
        watch.close()
        system.answers.set()
        await asyncio.sleep(0.05)
        assert not space.low

    watch(tmp_path, 2000 * MIB, system, scenario)


def test_an_error_is_logged_once_and_changes_nothing(tmp_path):
    system = FileSystem(5 * MIB)
    system.error = OSError(5, "Input/output error")

    async def scenario(watch, space, log):
        await until(lambda: system.asked > 1)
        assert not space.low
        system.error = None
        await until(lambda: space.low)
        system.error = OSError(5, "Input/output error")
        asked = system.asked
        await until(lambda: system.asked > asked + 2)
        assert space.low
        assert sum("cannot ask how much is free" in line for line in log.lines) == 2

    watch(tmp_path, 10 * MIB, system, scenario)


# ---------------------------------------------------------------------- refused publishes


def test_a_topic_refuses_what_its_memory_has_no_room_for(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        assert await publish(topic, b"1") == 0
        broker.space.low = True
        assert await publish(topic, b"2", b"3") == 0
        assert topic.publish(b"4") == NO_SPACE
        assert topic.publish(b"4", 60_000) == NO_SPACE
        assert await publish(topic, b"4", b"5") == NO_SPACE
        assert (topic.depth, topic.backend_depth, topic.message_count) == (3, 0, 3)
        broker.space.low = False
        assert await publish(topic, b"4") == 0
        assert (topic.depth, topic.backend_depth) == (4, 1)
        broker.space.low = True
        assert topic.publish(b"5") == NO_SPACE

    run(tmp_path, scenario, mem_queue_size=3)


def test_one_full_channel_refuses_for_all(tmp_path):
    """A message reaches all channels or none."""

    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channels = [topic.get_channel(name) for name in (b"a", b"b", b"c#ephemeral")]
        broker.space.low = True
        for _ in range(3):
            assert await publish(topic, b"x") == 0
        assert topic.publish(b"x") == NO_SPACE
        assert [channel.depth for channel in channels] == [3, 3, 3]
        assert topic.publish(b"later", 60_000) == 0, "a deferred message is in memory only"
        channels[0].empty()
        assert topic.publish(b"x") == NO_SPACE
        channels[1].empty()
        assert await publish(topic, b"x") == 0, "an ephemeral channel drops what it has no room for"
        assert [channel.backend_depth for channel in channels] == [0, 0, 0]

    run(tmp_path, scenario, mem_queue_size=3)


def test_an_ephemeral_topic_needs_no_disk(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t#ephemeral")
        broker.space.low = True
        for _ in range(10):
            assert await publish(topic, b"x") == 0

    run(tmp_path, scenario, mem_queue_size=3)


def test_a_batch_ends_where_the_memory_is_full(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        broker.space.low = True
        assert await publish(topic, *[b"x"] * 10) == NO_SPACE
        assert (topic.depth, topic.backend_depth) == (3, 0)

    run(tmp_path, scenario, mem_queue_size=3)
