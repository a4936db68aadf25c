"""The client for asyncio compared with the blocking one, against a daemon on loopback: batches, single publishes
and send() from many tasks and threads. Whole round trips, which include kernel and daemon."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import uvloop

from nsqc.client import Consumer, Producer, aio
from perf.load.server import Server, Side
from perf.micro import timing
from perf.micro.timing import Part, Row, Size

TITLE = "asyncio: nanoseconds a message of 200 bytes, beside the blocking client"
BODY = b"x" * 200
BATCH = 10_000
TOPIC = "batches#ephemeral"      # no consumer, and messages that exceed its memory are dropped
TAKEN = "taken"
SIDE = Side("nsqc", (sys.executable, "-m", "nsqc", "serve"))
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop] | None] = {"asyncio": None, "uvloop": uvloop.new_event_loop}


def bench(size: Size) -> list[Row]:
    """Compares each event loop with the blocking client, alternately."""
    with Server(SIDE) as server, Producer(f"127.0.0.1:{server.tcp}") as producer, ThreadPoolExecutor(8) as pool:
        beside = Beside(server, producer, pool, size)
        sends = beside.row("send, 8 threads", beside.sends, "publish, 8 threads", beside.threads, beside.singles)
        return [sends, *(row for name, factory in LOOPS.items() for row in beside.rows(name, factory))]


class Beside:
    """The work of both clients, and its message counts."""

    def __init__(self, server: Server, producer: Producer, pool: ThreadPoolExecutor, size: Size):
        self.address = f"127.0.0.1:{server.tcp}"
        self.producer, self.pool, self.size = producer, pool, size
        self.batch, self.batches = [BODY] * size.of(BATCH), size.of(20)
        self.each = size.of(50)         # messages of one of 100 tasks
        self.singles = 100 * self.each
        producer.publish(TOPIC, BODY)

    def rows(self, name: str, factory: Callable[[], asyncio.AbstractEventLoop] | None) -> list[Row]:
        """The rows of one event loop."""
        with asyncio.Runner(loop_factory=factory) as runner:
            there = aio.Producer(self.address)
            runner.run(there.publish(TOPIC, BODY))
            in_batches = len(self.batch) * self.batches
            rows = [
                self.row(f"{name}: publish_many", lambda: runner.run(self.aio_many(there)),
                         "blocking", self.many, in_batches),
                self.row(f"{name}: publish, 100 tasks", lambda: runner.run(self.aio_singles(there)),
                         "blocking, 8 threads", self.threads, self.singles),
                self.row(f"{name}: send, 100 tasks", lambda: runner.run(self.aio_sends(there)),
                         "blocking, 8 threads", self.sends, self.singles),
                self.row(f"{name}: messages, finished", lambda: runner.run(self.aio_taken()),
                         "blocking", self.taken, self.singles)]
            runner.run(there.close())
        return rows

    def row(self, name: str, run: Callable[[], None], other: str, beside: Callable[[], None], count: int) -> Row:
        """One row: the asyncio client's time and the blocking one's."""
        return timing.compare(Part(name, self.ready(run), count), Part(other, self.ready(beside), count), self.size)

    def ready(self, run: Callable[[], None]) -> Callable[[], Callable[[], None]]:
        """Publishes enough messages to consume."""
        def make() -> Callable[[], None]:
            self.producer.publish_many(TAKEN, [BODY] * self.singles)
            return run
        return make

    def many(self) -> None:
        """Batches, one after the other."""
        for _ in range(self.batches):
            self.producer.publish_many(TOPIC, self.batch)

    async def aio_many(self, producer: aio.Producer) -> None:
        """The same with asyncio."""
        for _ in range(self.batches):
            await producer.publish_many(TOPIC, self.batch)

    def threads(self) -> None:
        """Single messages from the pool's threads."""
        timing.exhaust(self.pool.map(lambda _: self.producer.publish(TOPIC, BODY), range(self.singles)))

    def sends(self) -> None:
        """The same in the background."""
        timing.exhaust(self.pool.map(lambda _: self.sends_some(self.singles // 8), range(8)))
        self.producer.flush()

    def sends_some(self, count: int) -> None:
        """What one thread sends."""
        for _ in range(count):
            self.producer.send(TOPIC, BODY)

    async def aio_sends(self, producer: aio.Producer) -> None:
        """The same with asyncio."""
        async def some() -> None:
            for _ in range(self.each):
                await producer.send(TOPIC, BODY)

        await asyncio.gather(*(some() for _ in range(100)))
        await producer.flush()

    async def aio_singles(self, producer: aio.Producer) -> None:
        """Single messages from 100 tasks."""
        async def some() -> None:
            for _ in range(self.each):
                await producer.publish(TOPIC, BODY)

        await asyncio.gather(*(some() for _ in range(100)))

    def taken(self) -> None:
        """Consumes messages and finishes each."""
        with Consumer(TAKEN, "bench", self.address, max_in_flight=1000) as consumer:
            for _, message in zip(range(self.singles), consumer, strict=False):
                message.finish()

    async def aio_taken(self) -> None:
        """The same with asyncio."""
        async with aio.Consumer(TAKEN, "bench", self.address, max_in_flight=1000) as consumer:
            for _ in range(self.singles):
                (await anext(consumer)).finish()


if __name__ == "__main__":
    timing.main(TITLE, bench)
