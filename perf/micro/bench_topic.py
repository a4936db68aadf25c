"""From topic to waiting channels, without sockets (nsqc.broker.topic, channel and nsqc.store.backlog)."""

from nsqc.broker.broker import Broker
from nsqc.broker.topic import OpenBatch
from nsqc.options.declared import Options, Settings
from nsqc.store.message import GuidFactory
from perf.micro import timing
from perf.micro.bench_mpub import HEAD_BYTES
from perf.micro.bench_parser import BATCH, multi_publish
from perf.micro.timing import Part, Row, Size

TITLE = "topic: nanoseconds a message of 200 bytes, into memory queues"


class Quiet:
    """A log that discards its lines."""

    def info(self, *_: object) -> None:
        """Drops the line."""

    error = warn = debug = info


def make_topic(channels: int):
    """A topic of a broker that keeps nothing on disk."""
    settings = Settings(Options(mem_queue_size=10**8))
    broker = Broker(settings, Quiet(), None, None, None, GuidFactory.make(1))
    topic = broker.get_topic(b"load#ephemeral")
    for number in range(channels):
        topic.get_channel(b"ch%d#ephemeral" % number)
    return topic


def bench(size: Size) -> list[Row]:
    """Single publishes; batches to one channel and to four."""
    body, batch, times = b"x" * 200, multi_publish()[HEAD_BYTES:], size.of(300)
    bodies = [body] * size.of(50_000)

    def single():
        topic = make_topic(1)
        return lambda: timing.exhaust(map(topic.publish, bodies))

    def batches(channels):
        topic = make_topic(channels)
        made = [OpenBatch.sized(batch, len(batch)) for _ in range(times)]
        return lambda: timing.exhaust(map(topic.publish_batch, made))

    copy = Part("bytearray, a copy", lambda: lambda: list(map(bytearray, bodies)), len(bodies))
    rows = [timing.compare(Part("publish, one channel", single, len(bodies)), copy, size)]
    rows += [timing.compare(Part(f"publish_batch of {BATCH}, {count} channel(s)", lambda count=count: batches(count),
                                 BATCH * times), copy, size) for count in (1, 4)]
    return rows


if __name__ == "__main__":
    timing.main(TITLE, bench)
