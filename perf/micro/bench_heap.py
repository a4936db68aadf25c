"""The heap of deadlines (nsqc.store.message)."""

import heapq
import random

from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.compiled.memory import DeadlineHeap

TITLE = "heap: nanoseconds a call, the making of an item included"
ITEMS = 50_000


def bench(size: Size) -> list[Row]:
    """push, pop, move and remove among 50,000 items; rising deadlines (as equal time-outs make them) and mixed ones."""
    count, dice = size.of(ITEMS), random.Random(5)
    numbers = range(count)
    rising = list(range(count))
    mixed = dice.sample(range(10 * count), count)
    later = [deadline + 10 * count for deadline in mixed]
    order = dice.sample(numbers, count)

    def filled(deadlines):
        heap = DeadlineHeap()
        timing.exhaust(map(heap.push, numbers, deadlines))
        return heap

    def push(deadlines):
        heap = DeadlineHeap()
        return lambda: timing.exhaust(map(heap.push, numbers, deadlines))

    def pop():
        heap = filled(mixed)
        return lambda: timing.exhaust(iter(heap.pop, None))

    def move():
        heap = filled(mixed)
        return lambda: timing.exhaust(map(heap.move, order, later))

    def remove(deadlines, order):
        heap = filled(deadlines)
        return lambda: timing.exhaust(map(heap.remove, order))

    def plain_push():
        heap = []
        return lambda: timing.exhaust(heapq.heappush(heap, pair) for pair in zip(mixed, numbers, strict=True))

    def plain_pop():
        heap = sorted(zip(mixed, numbers, strict=True))
        return lambda: timing.exhaust(heapq.heappop(heap) for _ in numbers)

    by_push, by_pop = Part("heapq.heappush", plain_push, count), Part("heapq.heappop", plain_pop, count)
    return [
        timing.compare(Part("push, rising", lambda: push(rising), count), by_push, size),
        timing.compare(Part("push, mixed", lambda: push(mixed), count), by_push, size),
        timing.compare(Part("move later, mixed", move, count), by_push, size),
        timing.compare(Part("remove, oldest first, rising", lambda: remove(rising, numbers), count), by_pop, size),
        timing.compare(Part("remove from anywhere, mixed", lambda: remove(mixed, order), count), by_pop, size),
        timing.compare(Part("pop, mixed", pop, count), by_pop, size),
    ]


if __name__ == "__main__":
    timing.main(TITLE, bench)
