"""Message ids (nsqc.store.message)."""

from itertools import repeat

from nsqc.store.message import GuidFactory
from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.compiled.memory import next_id

TITLE = "guid: nanoseconds an id, as bytes"
NOW = 1_790_000_000_000_000_000


def bench(size: Size) -> list[Row]:
    """Ids of one moment, and of a running clock."""
    many = size.of(100_000)
    same, running = [NOW] * many, range(NOW, NOW + 300 * many, 300)

    def make(times):
        factory = GuidFactory.make(1)
        return lambda: timing.exhaust(map(next_id, repeat(factory), times))

    def plain():
        form = b"%016x".__mod__
        return lambda: timing.exhaust(map(form, running))

    reference = Part("b'%016x' % n", plain, many)
    return [timing.compare(Part("next_id, one moment", lambda: make(same), many), reference, size),
            timing.compare(Part("next_id, running clock", lambda: make(running), many), reference, size)]


if __name__ == "__main__":
    timing.main(TITLE, bench)
