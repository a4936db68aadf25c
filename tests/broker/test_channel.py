"""Channels without sockets: messages they keep while writes fail, and how their topic continues."""

import asyncio
import errno
import time

import pytest

from nsqc.store.disk import fileio
from tests.broker.harness import publish, run, until


def test_a_stuck_channel_holds_its_topic_back_and_loses_nothing(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        for number in range(3):  # the channel's memory
            assert await publish(topic, b"%d" % number) == 0
        fileio.fail("write", errno.ENOSPC, times=10**6)
        assert await publish(topic, b"spills") == errno.ENOSPC
        assert channel.stuck
        assert [await publish(topic, b"x") for _ in range(3)] == [0, 0, 0], "the topic's own memory"
        assert await publish(topic, b"no more") == errno.ENOSPC
        assert (topic.depth, channel.depth) == (3, 4)
        fileio.fail("write", 0, times=0)
        await until(lambda: topic.depth == 0)
        assert channel.depth == 7
        assert not channel.stuck

    run(tmp_path, scenario, mem_queue_size=3)


@pytest.mark.parametrize("queue", ["topic", "channel"])
def test_a_stuck_channel_that_is_emptied_holds_its_topic_no_longer(tmp_path, queue):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        fileio.fail("write", errno.ENOSPC, times=10**6)
        assert await publish(topic, b"spills") == errno.ENOSPC
        assert channel.stuck
        if queue == "channel":
            channel.empty()
        else:
            broker.delete_topic(b"t")
        fileio.fail("write", 0, times=0)
        await until(lambda: broker.health() == "OK")
        if queue == "channel":
            assert not channel.stuck
            assert await publish(topic, b"after") == 0
            await until(lambda: (topic.depth, channel.depth) == (0, 1))

    run(tmp_path, scenario, mem_queue_size=0)


def test_what_comes_while_a_channel_heals_is_written_too(tmp_path):
    """A deferred message comes due during the write that ends the channel's failure."""
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        assert topic.publish(b"deferred", 1000) == 0
        fileio.fail("write", errno.ENOSPC, times=10**6)
        assert await publish(topic, b"spills") == errno.ENOSPC
        assert channel.stuck
        assert channel.deferred_count == 1
        fileio.fail("write", 0, times=0)
        channel.retry()
        await asyncio.sleep(0)      # the write has begun
        time.sleep(1)
        channel.expire()
        assert (channel.depth, channel.deferred_count) == (2, 0)
        await until(lambda: not channel.stuck)
        await until(lambda: not channel.disk.dirty)

    run(tmp_path, scenario, mem_queue_size=0)


def test_a_stuck_channel_that_has_nothing_left_to_write_lets_its_topic_go_on(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        assert await publish(topic, b"memory") == 0
        fileio.fail("write", errno.ENOSPC, times=10**6)
        assert await publish(topic, b"spills") == errno.ENOSPC
        assert channel.stuck
        assert await publish(topic, b"waits") == 0
        fileio.fail("write", 0, times=0)
        channel.empty()     # as when consumers have taken everything
        await until(lambda: not channel.stuck and (topic.depth, channel.depth) == (0, 1))
        await until(lambda: broker.health() == "OK")
        assert await publish(topic, b"after") == 0
        await until(lambda: channel.depth == 2)

    run(tmp_path, scenario, mem_queue_size=1)
