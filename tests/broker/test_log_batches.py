"""Large batches for a topic in a log, while its rule changes."""

import msgspec
import pytest

from nsqc.broker.topicstate import OpenBatch
from tests.broker.harness import run, until

COUNT = 400_000     # more than one slice publishes
BATCH = COUNT.to_bytes(4, "big") + b"\0\0\0\1x" * COUNT


def in_memory(topic):
    topic.set_rule(msgspec.structs.replace(topic.rule, storage="memory"))


@pytest.mark.parametrize("publish", [
    lambda topic, at, left, whole: topic.publish_batch(BATCH, at, left, whole),
    lambda topic, at, left, whole: topic.publish_lines(b"x\n" * COUNT, at, whole)], ids=["binary", "lines"])
@pytest.mark.parametrize("others", [0, 3], ids=["the log is gone", "the log has messages"])
def test_a_topic_that_leaves_its_log_meanwhile_keeps_all(tmp_path, publish, others):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        for _ in range(others):
            topic.publish(b"other")
        await until(lambda: topic.message_count == others and topic.depth == others)
        whole = OpenBatch()
        _, at, left = publish(topic, 0, -1, whole)
        assert left > 0
        in_memory(topic)
        topic.retain()
        assert (topic.log is None) == (others == 0)
        while left:
            failure, at, left = publish(topic, at, left, whole)
            assert failure == 0
        assert topic.message_count == COUNT + others
        assert topic.message_bytes == COUNT + 5 * others
        assert topic.depth == COUNT + others

    run(tmp_path, scenario, topic_storage="log", mem_queue_size=2 * COUNT)


def test_without_a_place_for_what_waits_it_is_refused(tmp_path):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        with pytest.raises(TypeError):
            topic.publish_batch(BATCH)
        with pytest.raises(TypeError):
            topic.publish_lines(b"x\n")
        assert topic.depth == 0

    run(tmp_path, scenario, topic_storage="log")
