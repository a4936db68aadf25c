"""Topics without sockets: publishing, refusals, hand-over to channels, discards."""

import asyncio
import errno

import pytest

from nsqc.broker.topic import NO_SPACE, PENDING, OpenBatch
from nsqc.store import message
from nsqc.store.disk import fileio
from nsqc.store.message import GuidFactory
from tests.broker.harness import publish, run, until


def test_a_backlog_that_cannot_be_read_is_tried_again(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        assert [await publish(topic, b"%d" % n) for n in range(20)] == [0] * 20
        fileio.fail("read", errno.EMFILE, times=10**6)
        channel = topic.get_channel(b"c")
        await asyncio.sleep(0.1)
        assert topic.depth + channel.depth == 20 and topic.depth > 10, "what was just written needs no reading"
        fileio.fail("read", 0, times=0)
        await until(lambda: (topic.depth, channel.depth) == (0, 20))

    run(tmp_path, scenario, mem_queue_size=0)


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_a_publish_that_cannot_be_written_is_refused(tmp_path, channels):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        for number in range(channels):
            topic.get_channel(b"c%d" % number)
        assert await publish(topic, b"kept") == 0
        fileio.fail("write", errno.ENOSPC, times=10**6)
        assert await publish(topic, b"refused") == errno.ENOSPC
        assert await publish(topic, b"a", b"b") == errno.ENOSPC
        assert broker.health().startswith("NOK - failed to write t")
        assert "No space left" in broker.health()
        fileio.fail("write", 0, times=0)
        await until(lambda: broker.health() == "OK")
        assert await publish(topic, b"after") == 0
        if channels == 0:
            assert (topic.depth, topic.message_count, topic.message_bytes) == (2, 2, 9)
        else:
            await until(lambda: topic.depth == 0)
            # A channel may keep a message whose write failed, as with nsqd.
            assert all(channel.depth >= 2 for channel in topic.channels.values())

    run(tmp_path, scenario, mem_queue_size=0)


def test_a_failed_write_takes_nothing_back_that_was_published_meanwhile(tmp_path):
    """Messages that arrive during a write belong to the next one, which has its own answer."""

    async def scenario(broker):
        topic = broker.get_topic(b"t")
        fileio.delay("write", 100_000_000)
        fileio.fail("write", errno.ENOSPC)
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
        fileio.delay("write", 0)


@pytest.mark.parametrize("failures", [1, 2])
def test_each_publisher_hears_of_the_write_of_its_own_message(tmp_path, failures):
    """Publishes while a write for another client is under way and will fail."""
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        results = {}
        fileio.fail("write", errno.ENOSPC, times=failures)
        for body in (b"first", b"second"):
            assert topic.publish(body) == PENDING
            topic.when_written(lambda failure, body=body: results.update({body: failure}))
            await asyncio.sleep(0)      # the write has begun, or follows the current one
        await until(lambda: len(results) == 2)
        assert results == {b"first": errno.ENOSPC, b"second": errno.ENOSPC if failures == 2 else 0}
        assert topic.depth == topic.message_count == 2 - failures
        assert topic.message_bytes == (len(b"second") if failures == 1 else 0)
        channel = topic.get_channel(b"c")
        await until(lambda: topic.depth == 0)
        assert channel.depth == 2 - failures

    run(tmp_path, scenario, mem_queue_size=0)


@pytest.mark.parametrize("drop", ["empty", "delete", "delete both"])
def test_a_topic_that_drops_what_it_passes_on_keeps_no_places(tmp_path, drop):
    """Its messages are being handed to a channel that cannot write them."""
    before = message.places_alive()

    async def scenario(broker):
        topic = broker.get_topic(b"t")
        assert [await publish(topic, b"%d" % n) for n in range(20)] == [0] * 20
        fileio.fail("write", errno.ENOSPC, times=10**6)
        channel = topic.get_channel(b"c")
        await until(lambda: channel.stuck)
        assert message.places_alive() > before
        if drop == "empty":
            topic.empty()
        else:
            if drop == "delete both":
                topic.delete_channel(b"c")
            broker.delete_topic(b"t")
        await until(lambda: message.places_alive() == before)
        fileio.fail("write", 0, times=0)
        await until(lambda: broker.health() == "OK")

    run(tmp_path, scenario, mem_queue_size=0)


@pytest.mark.parametrize("storage", ["memory", "log"])
def test_publishes_are_refused_when_the_saved_bound_of_ids_is_reached(tmp_path, storage):
    guids = GuidFactory.make(1, 1 << 42)

    async def scenario(broker):
        topic = broker.get_topic(b"t")
        topic.start()
        guids.set_bound(guids.reached + 1000, guids.reached + 10)
        guids.reason = "no bound"
        for refused in (topic.publish(b"x"), topic.publish_batch(OpenBatch.lines(b"x\ny"))):
            assert (refused, topic.refusal()) == (NO_SPACE, "no bound")
        guids.set_bound(guids.reached + 5000, guids.reached + 10)
        assert await publish(topic, b"x") == await publish(topic, b"x", b"y") == 0

    run(tmp_path, scenario, guids=guids, topic_storage=storage)
