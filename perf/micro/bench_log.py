"""From topic to the file of its log, without sockets (nsqc.broker.storage, nsqc.store.log.topiclog and append)."""

import asyncio
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

from nsqc.broker.broker import Broker
from nsqc.broker.health import WriteHealth
from nsqc.broker.stats import Timers
from nsqc.broker.topic import OpenBatch
from nsqc.options.declared import Options, Settings
from nsqc.options.rules import TopicRules
from nsqc.store.disk.manager import DiskQueues
from nsqc.store.log.manager import Logs
from nsqc.store.message import GuidFactory
from perf.micro import timing
from perf.micro.bench_mpub import HEAD_BYTES
from perf.micro.bench_parser import BATCH, multi_publish
from perf.micro.bench_topic import Quiet
from perf.micro.timing import Part, Row, Size

TITLE = "log: nanoseconds a message of 200 bytes, from the topic into the page cache"


def bench(size: Size) -> list[Row]:
    """Batches to one channel and to four, each batch one write."""
    batch, times = multi_publish()[HEAD_BYTES:], size.of(300)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as workers:
        return asyncio.run(rows(folder, workers, batch, times, size))


async def rows(folder: str, workers: ThreadPoolExecutor, batch: bytes, times: int, size: Size) -> list[Row]:
    """As bench()."""
    loop, log = asyncio.get_running_loop(), Quiet()
    settings = Settings(Options(topic_storage="log", log_sync="write"))
    rules = TopicRules(loop, workers, folder, settings, log)
    disks = DiskQueues(folder, loop, workers, log, *settings.now.disk_limits)
    logs = Logs(folder, disks, False, 1 << 30, loop, workers, log)
    health = WriteHealth(loop, workers, folder, log, disks.failing_sync)
    broker = Broker(settings, log, Timers(loop), disks, health, GuidFactory.make(1), loop, rules, None, logs)
    found = []
    reference = os.open(f"{folder}/plain", os.O_WRONLY | os.O_CREAT)
    data = bytes(len(batch) + 64)     # with the head of a frame

    def publish(topic):
        for _ in range(times):
            topic.publish_batch(OpenBatch.sized(batch, len(batch)))
            broker.commits.finish()

    def write_plain():
        timing.exhaust(map(os.write, [reference] * times, [data] * times))

    for channels in (1, 4):
        topic = broker.get_topic(b"load%d" % channels)
        for number in range(channels):
            topic.get_channel(b"ch%d" % number)
        topic.publish(b"the first one makes the files, on a thread")
        broker.commits.finish()
        while topic.log.bytes == 0:
            await asyncio.sleep(0.001)
        found.append(timing.compare(Part(f"publish_batch of {BATCH}, {channels} channel(s)",
                                         lambda topic=topic: lambda: publish(topic), BATCH * times),
                                    Part("a plain file, write", lambda: write_plain, BATCH * times), size))
    os.close(reference)
    health.close()
    await disks.quiet()
    broker.close()
    await disks.settle()
    return found


if __name__ == "__main__":
    timing.main(TITLE, bench)
