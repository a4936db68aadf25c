"""A broker on a loop, with real disk queues and without sockets."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from nsqc.broker.broker import Broker
from nsqc.broker.health import WriteHealth
from nsqc.broker.stats import Timers
from nsqc.broker.topic import PENDING, OpenBatch
from nsqc.log import Log
from nsqc.options.declared import Options, Settings
from nsqc.options.rules import TopicRules
from nsqc.store.disk import fileio
from nsqc.store.disk.manager import DiskQueues
from nsqc.store.log.manager import Logs
from nsqc.store.message import GuidFactory
from tests.support.patience import WAIT_SECONDS


class Lines:
    """A log that keeps its lines."""

    def __init__(self):
        self.lines = []

    def info(self, text, *arguments):
        self.lines.append(text % arguments if arguments else text)

    debug = warn = error = info


def run(tmp_path, scenario, closed=lambda broker, delays, lost: None, guids=None, stopped=False, **options):
    """Runs scenario(broker) on a loop, with real disk queues in tmp_path; closed() gets what Broker.close() returns.
    stopped: the run before was not killed."""

    async def main():
        loop = asyncio.get_running_loop()
        log = Log(level=5)
        with ThreadPoolExecutor(2) as workers:
            settings = Settings(Options(**options))
            disks = DiskQueues(tmp_path, loop, workers, log, *settings.now.disk_limits)
            write_health = WriteHealth(loop, workers, str(tmp_path), log, disks.failing_sync)
            rules = TopicRules(loop, workers, str(tmp_path), settings, log)
            logs = Logs(tmp_path, disks, False, settings.now.max_bytes_per_file, loop, workers, log,
                        stopped=stopped)
            broker = Broker(settings, log, Timers(loop), disks, write_health, guids or GuidFactory.make(1), loop,
                            rules, logs=logs)
            try:
                await scenario(broker)
                disks.check_rules()
            finally:
                fileio.fail("read", 0, times=0)
                fileio.fail("write", 0, times=0)
                write_health.close()
                await disks.quiet()
                closed(broker, *broker.close())
                await disks.settle()

    asyncio.run(main())


async def publish(topic, *bodies):
    """0 or errno, once all pending data is written."""
    failure = topic.publish(bodies[0]) if len(bodies) == 1 else topic.publish_batch(OpenBatch.lines(b"\n".join(bodies)))
    return await written(topic) if failure == PENDING else failure


async def written(topic):
    """0 or errno, once everything published so far is written."""
    ended = asyncio.get_running_loop().create_future()
    topic.when_written(ended.set_result)
    return await ended


async def until(condition):
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)
