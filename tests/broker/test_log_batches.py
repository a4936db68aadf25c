"""Large batches for a topic in a log, while its rule changes."""

import msgspec
import pytest

from nsqc.broker.topic import OpenBatch
from tests.broker.harness import run, until

COUNT = 400_000     # more than one slice publishes
BATCH = COUNT.to_bytes(4, "big") + b"\0\0\0\1x" * COUNT


def in_memory(topic):
    topic.set_rule(msgspec.structs.replace(topic.rule, storage="memory"))


@pytest.mark.parametrize("new_batch", [lambda: OpenBatch.sized(BATCH, len(BATCH)),
                                       lambda: OpenBatch.lines(b"x\n" * COUNT)], ids=["binary", "lines"])
@pytest.mark.parametrize("others", [0, 3], ids=["the log is gone", "the log has messages"])
def test_a_topic_that_leaves_its_log_meanwhile_keeps_all(tmp_path, new_batch, others):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        for _ in range(others):
            topic.publish(b"other")
        await until(lambda: topic.message_count == others and topic.depth == others)
        batch = new_batch()
        assert topic.publish_batch(batch) == 0
        assert batch.open
        in_memory(topic)
        topic.retain()
        assert (topic.log is None) == (others == 0)
        while batch.open:
            assert topic.publish_batch(batch) == 0
        assert topic.message_count == COUNT + others
        assert topic.message_bytes == COUNT + 5 * others
        assert topic.depth == COUNT + others

    run(tmp_path, scenario, topic_storage="log", mem_queue_size=2 * COUNT)
