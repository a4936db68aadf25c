"""Sets of offsets, every second one unfinished (nsqc.store.log.positions)."""

import random

from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.compiled.logs import Offsets

TITLE = "offsets: nanoseconds for a message of a million ranges"


def bench(size: Size) -> list[Row]:
    """Ranges that begin and end in order, and in random order; waiting messages in random order."""
    count = size.of(1_000_000)
    in_order = range(0, 2 * count, 2)
    shuffled = list(in_order)
    random.Random(1).shuffle(shuffled)

    def scattered() -> Offsets:
        offsets = Offsets()
        for offset in in_order:
            offsets.add(offset, offset + 1)
        return offsets

    def add(order):
        def make():
            offsets = Offsets()
            return lambda: timing.exhaust(offsets.add(offset, offset + 1) for offset in order)
        return make

    def finish(order):
        def make():
            offsets = scattered()
            return lambda: timing.exhaust(offsets.remove(offset, offset + 1) for offset in order)
        return make

    def wait():
        waiting = Offsets()
        return lambda: timing.exhaust(waiting.put(offset, offset + 1, 1, offset) for offset in shuffled)

    def plain():
        offsets = set(in_order)
        return lambda: timing.exhaust(offsets.remove(offset) for offset in shuffled)

    by_set = Part("set.remove", plain, count)
    return [
        timing.compare(Part("add in order", add(in_order), count), by_set, size),
        timing.compare(Part("add in no order", add(shuffled), count), by_set, size),
        timing.compare(Part("finish in order", finish(in_order), count), by_set, size),
        timing.compare(Part("finish in no order", finish(shuffled), count), by_set, size),
        timing.compare(Part("put waiting in no order", wait, count), by_set, size),
    ]


if __name__ == "__main__":
    timing.main(TITLE, bench)
