"""The memory queue (nsqc.store.message)."""

from collections import deque

from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.compiled.memory import MemoryQueue

TITLE = "fifo: nanoseconds a call, the making of a message of 200 bytes included"


def bench(size: Size) -> list[Row]:
    """push and pop of 100,000 messages, and a queue that stays short."""
    count = size.of(100_000)
    bodies = [b"x" * 200] * count

    def push():
        queue = MemoryQueue()
        return lambda: timing.exhaust(map(queue.push, bodies))

    def pop():
        queue = MemoryQueue()
        timing.exhaust(map(queue.push, bodies))
        return lambda: timing.exhaust(iter(queue.pop, None))

    def short():
        queue = MemoryQueue()
        return lambda: timing.exhaust(queue.push(body) or queue.pop() for body in bodies)

    def plain_push():
        queue = deque()
        return lambda: timing.exhaust(map(queue.append, map(bytearray, bodies)))

    def plain_pop():
        queue = deque(map(bytearray, bodies))
        return lambda: timing.exhaust(bytes(queue.popleft()) for _ in bodies)

    by_push = Part("deque.append of a copy", plain_push, count)
    return [
        timing.compare(Part("push", push, count), by_push, size),
        timing.compare(Part("pop", pop, count), Part("deque.popleft and a copy", plain_pop, count), size),
        timing.compare(Part("push and pop, short queue", short, count), by_push, size),
    ]


if __name__ == "__main__":
    timing.main(TITLE, bench)
