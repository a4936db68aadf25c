"""Topics and channels without sockets: flow, failed writes, what a stop returns."""

import asyncio
import errno
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from nsqc.broker.broker import Broker
from nsqc.broker.health import WriteHealth
from nsqc.broker.timers import Timers
from nsqc.broker.topic import PENDING
from nsqc.log import Log
from nsqc.options.declared import Options, Settings
from nsqc.store.disk import syscalls, unacked
from nsqc.store.disk.manager import DiskQueues
from nsqc.store.guid import GuidFactory


def run(tmp_path, scenario, closed=lambda broker, delays, lost: None, **options):
    """Runs scenario(broker) on a loop, with real disk queues in tmp_path; closed() gets what Broker.close() returns."""

    async def main():
        loop = asyncio.get_running_loop()
        log = Log(level=5)
        with ThreadPoolExecutor(2) as workers:
            settings = Settings(Options(**options))
            disks = DiskQueues(settings.now, tmp_path, loop, workers, log)
            write_health = WriteHealth(loop, workers, str(tmp_path), log, disks.failing_sync)
            broker = Broker(settings, log, Timers(loop), disks, write_health, GuidFactory.make(1), loop)
            try:
                await scenario(broker)
                disks.check_rules()
            finally:
                syscalls.fail("read", 0, times=0)
                syscalls.fail("write", 0, times=0)
                write_health.close()
                await disks.quiet()
                closed(broker, *broker.close())
                await disks.settle()

    asyncio.run(main())


async def publish(topic, *bodies):
    """0 or errno, once what is to be written is."""
    failure = topic.publish(bodies[0]) if len(bodies) == 1 else topic.publish_lines(b"\n".join(bodies))[0]
    if failure == PENDING:
        written = asyncio.get_running_loop().create_future()
        topic.when_written(written.set_result)
        failure = await written
    return failure


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come true")


def test_a_backlog_that_cannot_be_read_is_tried_again(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        assert [await publish(topic, b"%d" % n) for n in range(20)] == [0] * 20
        syscalls.fail("read", errno.EMFILE, times=10**6)
        channel = topic.get_channel(b"c")
        await asyncio.sleep(0.1)
        assert topic.depth + channel.depth == 20 and topic.depth > 10, "what was just written needs no reading"
        syscalls.fail("read", 0, times=0)
        await until(lambda: (topic.depth, channel.depth) == (0, 20))

    run(tmp_path, scenario, mem_queue_size=0)


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_a_publish_that_cannot_be_written_is_refused(tmp_path, channels):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        for number in range(channels):
            topic.get_channel(b"c%d" % number)
        assert await publish(topic, b"kept") == 0
        syscalls.fail("write", errno.ENOSPC, times=10**6)
        assert await publish(topic, b"refused") == errno.ENOSPC
        assert await publish(topic, b"a", b"b") == errno.ENOSPC
        assert broker.health().startswith("NOK - failed to write t")
        assert "No space left" in broker.health()
        syscalls.fail("write", 0, times=0)
        await until(lambda: broker.health() == "OK")
        assert await publish(topic, b"after") == 0
        if channels == 0:
            assert (topic.depth, topic.message_count, topic.message_bytes) == (2, 2, 9)
        else:
            await until(lambda: topic.depth == 0)
            assert all(channel.depth >= 2 for channel in topic.channels.values())

    run(tmp_path, scenario, mem_queue_size=0)


def test_a_failed_write_takes_nothing_back_that_was_published_meanwhile(tmp_path):
    """What comes while a write is under way belongs to the next one, whose answer is its own."""

    async def scenario(broker):
        topic = broker.get_topic(b"t")
        syscalls.delay("write", 100_000_000)
        syscalls.fail("write", errno.ENOSPC)
        large = b"x" * 200_000  # written by a thread
        first = asyncio.ensure_future(publish(topic, large))
        await asyncio.sleep(0.03)
        second = asyncio.ensure_future(publish(topic, large))
        await asyncio.sleep(0)
        assert topic.depth == 2, "both are on their way"
        assert (await first, await second) == (errno.ENOSPC, 0)
        assert (topic.depth, topic.message_count, topic.message_bytes) == (1, 1, len(large))

    try:
        run(tmp_path, scenario, mem_queue_size=0)
    finally:
        syscalls.delay("write", 0)


def test_a_stuck_channel_holds_its_topic_back_and_loses_nothing(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        for number in range(3):  # the channel's memory
            assert await publish(topic, b"%d" % number) == 0
        syscalls.fail("write", errno.ENOSPC, times=10**6)
        assert await publish(topic, b"spills") == errno.ENOSPC
        assert channel.stuck
        assert [await publish(topic, b"x") for _ in range(3)] == [0, 0, 0], "the topic's own memory"
        assert await publish(topic, b"no more") == errno.ENOSPC
        assert (topic.depth, channel.depth) == (3, 4)
        syscalls.fail("write", 0, times=0)
        await until(lambda: topic.depth == 0)
        assert channel.depth == 7
        assert not channel.stuck

    run(tmp_path, scenario, mem_queue_size=3)


@pytest.mark.parametrize("failures", [1, 2])
def test_each_publisher_hears_of_the_write_of_its_own_message(tmp_path, failures):
    """One publishes while the write for another is under way that will fail."""
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        results = {}
        syscalls.fail("write", errno.ENOSPC, times=failures)
        for body in (b"first", b"second"):
            assert topic.publish(body) == PENDING
            topic.when_written(lambda failure, body=body: results.update({body: failure}))
            await asyncio.sleep(0)      # its write has begun, or follows the one under way
        await until(lambda: len(results) == 2)
        assert results == {b"first": errno.ENOSPC, b"second": errno.ENOSPC if failures == 2 else 0}
        assert topic.depth == topic.message_count == 2 - failures
        assert topic.message_bytes == (len(b"second") if failures == 1 else 0)
        channel = topic.get_channel(b"c")
        await until(lambda: topic.depth == 0)
        assert channel.depth == 2 - failures

    run(tmp_path, scenario, mem_queue_size=0)


@pytest.mark.parametrize("queue", ["topic", "channel"])
def test_a_stuck_channel_that_is_emptied_holds_its_topic_no_longer(tmp_path, queue):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        syscalls.fail("write", errno.ENOSPC, times=10**6)
        assert await publish(topic, b"spills") == errno.ENOSPC
        assert channel.stuck
        if queue == "channel":
            channel.empty()
        else:
            broker.delete_topic(b"t")
        syscalls.fail("write", 0, times=0)
        await until(lambda: broker.health() == "OK")
        if queue == "channel":
            assert not channel.stuck
            assert await publish(topic, b"after") == 0
            await until(lambda: (topic.depth, channel.depth) == (0, 1))

    run(tmp_path, scenario, mem_queue_size=0)


def test_what_comes_while_a_channel_heals_is_written_too(tmp_path):
    """A deferred message comes due while the write is under way that ends the channel's failure."""
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        assert topic.publish(b"deferred", 20) == 0
        syscalls.fail("write", errno.ENOSPC, times=10**6)
        assert await publish(topic, b"spills") == errno.ENOSPC
        assert channel.stuck
        assert channel.deferred_count == 1
        syscalls.fail("write", 0, times=0)
        channel.retry()
        await asyncio.sleep(0)      # the write has begun
        time.sleep(0.03)
        channel.expire()
        assert (channel.depth, channel.deferred_count) == (2, 0)
        await until(lambda: not channel.stuck)
        await until(lambda: not channel.disk.dirty)

    run(tmp_path, scenario, mem_queue_size=0)


@pytest.mark.parametrize("drop", ["empty", "delete", "delete both"])
def test_a_topic_that_drops_what_it_passes_on_keeps_no_places(tmp_path, drop):
    """Its messages are on their way to a channel that cannot write them."""
    before = unacked.alive()

    async def scenario(broker):
        topic = broker.get_topic(b"t")
        assert [await publish(topic, b"%d" % n) for n in range(20)] == [0] * 20
        syscalls.fail("write", errno.ENOSPC, times=10**6)
        channel = topic.get_channel(b"c")
        await until(lambda: channel.stuck)
        assert unacked.alive() > before
        if drop == "empty":
            topic.empty()
        else:
            if drop == "delete both":
                topic.delete_channel(b"c")
            broker.delete_topic(b"t")
        await until(lambda: unacked.alive() == before)
        syscalls.fail("write", 0, times=0)
        await until(lambda: broker.health() == "OK")

    run(tmp_path, scenario, mem_queue_size=0)


def test_a_stuck_channel_that_has_nothing_left_to_write_lets_its_topic_go_on(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        assert await publish(topic, b"memory") == 0
        syscalls.fail("write", errno.ENOSPC, times=10**6)
        assert await publish(topic, b"spills") == errno.ENOSPC
        assert channel.stuck
        assert await publish(topic, b"waits") == 0
        syscalls.fail("write", 0, times=0)
        channel.empty()     # as when consumers have taken it all
        await until(lambda: not channel.stuck and (topic.depth, channel.depth) == (0, 1))
        await until(lambda: broker.health() == "OK")
        assert await publish(topic, b"after") == 0
        await until(lambda: channel.depth == 2)

    run(tmp_path, scenario, mem_queue_size=1)


def test_ephemeral_topics_and_channels(tmp_path):
    async def scenario(broker):
        events = []
        broker.listeners.append(lambda event, topic, channel: events.append((event, topic.name, channel and channel.name)))
        topic = broker.get_topic(b"t#ephemeral")
        topic.get_channel(b"c")
        for _ in range(10):
            assert await publish(topic, b"x") == 0
        assert topic.channels[b"c"].depth == 10, "a lasting channel of an ephemeral topic spills to disk"
        topic.get_channel(b"e#ephemeral")
        for _ in range(10):
            topic.publish(b"x")
        assert topic.channels[b"e#ephemeral"].depth == 4, "what exceeds memory is dropped"
        assert topic.delete_channel(b"c")
        assert not topic.delete_channel(b"c")
        assert topic.delete_channel(b"e#ephemeral")
        assert broker.topic(b"t#ephemeral") is None, "it goes with its last channel"
        assert [event for event, _, _ in events] == [
            "topic created", "channel created", "channel created", "channel deleted", "channel deleted", "topic deleted"]

    run(tmp_path, scenario, mem_queue_size=4)


def test_many_topics_are_found_by_name(tmp_path):
    async def scenario(broker):
        names = [b"topic-%d" % n for n in range(500)]
        for name in names:
            broker.get_topic(name)
        assert all(broker.topic(name).name == name for name in names)
        for name in names[::2]:
            assert broker.delete_topic(name)
        assert not broker.delete_topic(names[0])
        assert len(broker.topics) == 250

    run(tmp_path, scenario)


def test_close_returns_what_the_disk_format_has_no_room_for(tmp_path):
    async def scenario(broker):
        broker.get_topic(b"waits").publish(b"x", 5000)
        topic = broker.get_topic(b"t")
        topic.get_channel(b"c")
        topic.publish(b"y", 60_000)
        assert topic.channels[b"c"].deferred_count == 1

    def closed(broker, delays, lost):
        assert lost == 0
        assert list(delays["topics"]["waits"].values()) == [5000]
        assert len(delays["channels"]["t:c"]) == 1
        assert broker.topics[b"t"].publish(b"late") != 0

    run(tmp_path, scenario, closed)
