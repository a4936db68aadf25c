"""Tracking unacknowledged records of a disk queue (nsqc.store.message)."""

from collections import OrderedDict

from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.compiled.memory import UnackedList

TITLE = "unacked: nanoseconds for a record handed out and done with"
WINDOW = 2500


def bench(size: Size) -> list[Row]:
    """Records finished in order, and 2500 at once in reverse order."""
    count = size.of(100_000) // WINDOW * WINDOW or WINDOW

    def in_order():
        out = UnackedList()
        return lambda: timing.exhaust(out.done(out.add(0, at, 230)) for at in range(count))

    def backwards():
        out = UnackedList()

        def window(begin):
            serials = [out.add(0, at, 230) for at in range(begin, begin + WINDOW)]
            timing.exhaust(map(out.done, reversed(serials)))

        return lambda: timing.exhaust(map(window, range(0, count, WINDOW)))

    def plain():
        out = OrderedDict()

        def one(at):
            out[at] = (0, at)
            del out[at]

        return lambda: timing.exhaust(map(one, range(count)))

    by_dict = Part("OrderedDict", plain, count)
    return [
        timing.compare(Part("add and done, in order", in_order, count), by_dict, size),
        timing.compare(Part("add and done, windows backwards", backwards, count), by_dict, size),
    ]


if __name__ == "__main__":
    timing.main(TITLE, bench)
