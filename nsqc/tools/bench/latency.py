"""Measures latency: PUB to delivery, one message at a time at a steady rate."""

from __future__ import annotations

import select
import struct
import time

from nsqc.client.encode import pub
from nsqc.tools.bench.load import Load, Result, Samples
from nsqc.tools.errors import ToolError

STAMP = struct.Struct("<d")
LAST_S = 5.0        # timeout for the last messages


def measure(load: Load, rate: float) -> Result:
    """Sends at this rate per second. Each body begins with the time it was due to be sent, so a lagging node is charged
    for the delay. Raises ClientError, ToolError."""
    times: list[float] = []
    topic = load.topic.encode()
    filler = bytes(load.size - STAMP.size)
    with load.connected(2) as (producer, consumer):
        consumer.subscribe(load.topic, "latency")
        consumer.ready(min(load.ready, consumer.max_ready))
        poll = select.poll()
        poll.register(producer, select.POLLIN)
        poll.register(consumer, select.POLLIN)
        samples = Samples()
        total = max(int(load.seconds * rate), 1)
        sent = 0
        while len(times) < total:
            now = time.monotonic()
            while sent < total and now >= (due := samples.began + sent / rate):
                producer.enqueue(pub(topic, STAMP.pack(due) + filler))
                sent += 1
                now = time.monotonic()
            if now > samples.began + load.seconds + LAST_S:
                raise ToolError(f"{load.address}: {total - len(times)} of {total} messages were not delivered in time")
            # poll() waits for whole milliseconds: the last one is spent polling.
            left = samples.began + sent / rate - now if sent < total else 0.1
            for descriptor, _ in poll.poll(max(int(left * 1000) - 1, 0)):
                if descriptor == producer.fileno():
                    producer.flush()
                    producer.answered()
                    continue
                consumer.pull()
                now = time.monotonic()
                if not consumer.inflow.rows:
                    continue
                count, bodies, offsets, _, _, ids = consumer.inflow.columns()
                consumer.finish_ids(ids)
                starts = memoryview(offsets).cast("B").cast("i")
                data = memoryview(bodies)
                times += [now - STAMP.unpack_from(data, starts[at])[0] for at in range(count)]
                samples.add(count, now)
        seconds = time.monotonic() - samples.began
    return Result("latency", load.size, len(times), seconds, sorted(times), samples.counts)
