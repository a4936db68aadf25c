"""Memory that a burst of messages took returns to the system, as docs/guarantees.md promises."""

import pytest

from tests.support.daemon import wait_until

MIB = 1 << 20
BURST = 512 * MIB
BATCH = 50
PROMISED_BYTES = 64 * MIB


@pytest.mark.long
@pytest.mark.parametrize("size", [2000, 10_000, 65_536, 300_000])
def test_after_a_burst(daemon, size):
    # Slow: half a gigabyte passes through the daemon three times, one batch after the other.
    node = daemon("--mem-queue-size=100000000", "--max-body-size=33554432")
    consumer = node.connect().sub("t", "c")
    producer = node.connect()
    count = BURST // size // BATCH * BATCH
    producer.pub("t", b"x" * size)
    consumer.command("RDY 2500")
    consumer.fin(consumer.message())
    before = node.rss()
    for _ in range(3):
        consumer.command("RDY 0")
        for _ in range(count // BATCH):
            producer.pub("t", *[b"x" * size] * BATCH)
        assert node.rss() - before > 0.9 * count * size
        consumer.command("RDY 2500")
        consumer.messages(count, finish=True)
    wait_until(lambda: node.rss() - before <= PROMISED_BYTES, "the memory is released")
