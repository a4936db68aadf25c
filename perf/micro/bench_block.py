"""Frames of a log as Arrow columns (nsqc.store.log.reading), compared with struct and slices in Python."""

import struct

from nsqc.store.log.names import FRAMES_AT
from nsqc.store.log.reading import ID, OFFSET, TIMESTAMP, VALUE, LogBlock
from nsqc.store.message import GuidFactory
from perf.micro import timing
from perf.micro.timing import Part, Row, Size
from tests.compiled import logs

TITLE = "block: nanoseconds a record"
BATCH_ROWS = 10_000
BATCH = 200             # messages per publish
SALT = 0x1122334455667788


def frames(body: int, rows: int) -> bytes:
    """This many records, one batch per frame."""
    collector, batch = logs.Collector(GuidFactory.make(1)), (body.to_bytes(4, "big") + b"x" * body) * BATCH
    for number in range(rows // BATCH):
        collector.add_batch(batch, BATCH, 10**18 + number * 10**7)
    return collector.sealed(SALT, FRAMES_AT, 0, 0)[0]


def cut(data: bytes, wanted: int, rows: int) -> None:
    """All batches."""
    block = LogBlock(data, len(data), SALT, FRAMES_AT, 0, rows)
    while block.batch(BATCH_ROWS, 1 << 24, wanted) is not None:
        pass


def plain(data: bytes) -> None:
    """Without this module and without checks."""
    at, found = 0, []
    while at < len(data):
        payload, records = struct.unpack_from(">8xI8xI", data, at)
        first, time_ns, number = struct.unpack_from(">32xqqq", data, at)
        record = at + 64
        for row in range(records):
            end = record + 4 + int.from_bytes(data[record:record + 4], "big")
            found.append((data[record + 4:end], time_ns, first + row, b"%016x" % (number + row)))
            record = end
        at += 64 + payload + 7 & ~7


def bench(size: Size) -> list[Row]:
    """All columns and bodies only, by size of body."""
    rows = []
    for body in (20, 200, 2000):
        many = size.of(4_000_000 // (body + 30)) // BATCH * BATCH or BATCH
        data = frames(body, many)
        for title, wanted in (("all columns", VALUE | TIMESTAMP | ID | OFFSET), ("bodies", VALUE)):
            rows.append(timing.compare(
                Part(f"{title}, {body} bytes",
                     lambda data=data, wanted=wanted, many=many: lambda: cut(data, wanted, many), many),
                Part("struct", lambda data=data: lambda: plain(data), many), size))
    return rows


if __name__ == "__main__":
    timing.main(TITLE, bench)
