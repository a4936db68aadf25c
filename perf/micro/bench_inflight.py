"""The map of in-flight messages (nsqc.store.message)."""

from nsqc.store.message import GuidFactory
from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.compiled.memory import InFlightTable, next_id

TITLE = "inflight: nanoseconds a call, the making of an entry included"
NOW = 1_790_000_000_000_000_000


def bench(size: Size) -> list[Row]:
    """add, find and remove with as many ids as one consumer's RDY, and with many more."""
    rows = []
    for title, count in (("2,500 ids", 2500), ("200,000 ids", size.of(200_000))):
        factory = GuidFactory.make(1)
        ids = [next_id(factory, NOW) for _ in range(count)]
        rows += for_ids(title, ids, size)
    return rows


def for_ids(title: str, ids: list[bytes], size: Size) -> list[Row]:
    """The three calls over one set of ids."""
    count, owners = len(ids), [1] * len(ids)

    def filled():
        table = InFlightTable()
        timing.exhaust(map(table.add, ids, owners))
        return table

    def plain():
        return dict.fromkeys(ids, 1)

    def over(make, name):
        def run():
            call = getattr(make(), name)
            return lambda: timing.exhaust(map(call, ids, owners))
        return run

    return [
        timing.compare(Part(f"{name}, {title}", over(make, name), count),
                       Part(text, over(dict_of, method), count), size)
        for name, make, text, dict_of, method in (
            ("add", InFlightTable, "dict.setdefault", dict, "setdefault"),
            ("find", filled, "dict.get", plain, "get"),
            ("remove", filled, "dict.pop", plain, "pop"))
    ]


if __name__ == "__main__":
    timing.main(TITLE, bench)
