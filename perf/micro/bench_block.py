"""Records as Arrow columns (nsqc.spark.log.block), beside struct and slices in Python."""

import struct

from nsqc.spark.log.block import ATTEMPTS, ID, OFFSET, TIMESTAMP, VALUE, Block
from perf.micro import timing
from perf.micro.timing import Part, Row, Size

TITLE = "block: nanoseconds a record"
HEAD = struct.Struct(">iqH16s")
BATCH_ROWS = 10_000


def cut(data: bytes, wanted: int, rows: int) -> None:
    """All batches."""
    block = Block(data, len(data), 0, rows, rows)
    while block.batch(BATCH_ROWS, 1 << 24, wanted) is not None:
        pass


def plain(data: bytes) -> None:
    """Without this module."""
    at, found = 0, []
    while at < len(data):
        size, stamp, attempts, number = HEAD.unpack_from(data, at)
        found.append((data[at + HEAD.size:at + 4 + size], stamp, attempts, number))
        at += 4 + size


def bench(size: Size) -> list[Row]:
    """All columns and bodies only, by size of body."""
    rows = []
    for body in (20, 200, 2000):
        many = size.of(4_000_000 // (body + 30))
        data = (HEAD.pack(26 + body, 1, 0, b"0" * 16) + b"x" * body) * many
        for title, wanted in (("all columns", VALUE | TIMESTAMP | ATTEMPTS | ID | OFFSET), ("bodies", VALUE)):
            rows.append(timing.compare(
                Part(f"{title}, {body} bytes",
                     lambda data=data, wanted=wanted, many=many: lambda: cut(data, wanted, many), many),
                Part("struct", lambda data=data: lambda: plain(data), many), size))
    return rows


if __name__ == "__main__":
    timing.main(TITLE, bench)
