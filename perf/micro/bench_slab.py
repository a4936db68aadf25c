"""Memory of messages (nsqc.store.memory and message, through the memory queue)."""

from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.compiled.memory import MemoryQueue

TITLE = "slab: nanoseconds a message, its place in the queue included"


def bench(size: Size) -> list[Row]:
    """Filling and clearing with bodies of several sizes; the larger ones are in coarser size classes."""
    count, rows = size.of(50_000), []
    for body_bytes in (16, 200, 1000, 5000):
        bodies = [b"x" * body_bytes] * count
        for what, part in (("fill", fill), ("clear", clear)):
            rows.append(timing.compare(
                Part(f"{what}, {body_bytes} bytes", part(bodies), count),
                Part("bytearray, a copy", lambda bodies=bodies: lambda: list(map(bytearray, bodies)), count), size))
    return rows


def fill(bodies: list[bytes]):
    """Makes and queues all."""
    def make():
        queue = MemoryQueue()
        return lambda: timing.exhaust(map(queue.push, bodies))
    return make


def clear(bodies: list[bytes]):
    """Frees all."""
    def make():
        queue = MemoryQueue()
        timing.exhaust(map(queue.push, bodies))
        return queue.clear
    return make


if __name__ == "__main__":
    timing.main(TITLE, bench)
