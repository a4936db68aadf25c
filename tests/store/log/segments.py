"""Writes segments as docs/ondisk.md describes them."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from nsqc.store.log.format import TIME_UNIT, checksum

BASE = 1_700_000_000_000_000_000
STEP = 1_000_000_000  # from one message to the next


class Written(NamedTuple):
    """A segment."""

    first: int
    end: int
    dat: Path
    idx: Path
    records: list[bytes]

    @property
    def bounds(self) -> tuple[int, int, int]:
        """As TopicLog.segments has it."""
        return self.first, self.end, sum(map(len, self.records))

    def position(self, offset: int) -> int:
        """Of a record, or behind the last."""
        return sum(map(len, self.records[:offset - self.first]))


def body_of(offset: int) -> bytes:
    """Their lengths differ."""
    return b"message %d " % offset * (1 + offset % 5)


def record(offset: int, body: bytes | None = None) -> bytes:
    """A record; its id is its offset."""
    body = body_of(offset) if body is None else body
    return struct.pack(">iqH", 26 + len(body), BASE + offset * STEP, 0) + b"%016x" % offset + body


def index_head(first: int) -> bytes:
    """Of an index."""
    head = struct.pack(">8sqqI", b"NSQCIDX1", first, BASE + first * STEP, 0)
    return head + struct.pack(">I", checksum(head))


def entry(first: int, offset: int, position: int, data: bytes, more: bool = False) -> bytes:
    """Of an index."""
    fields = struct.pack(">III", position | more << 31, (offset - first) * STEP // TIME_UNIT, checksum(data))
    return fields + struct.pack(">I", checksum(struct.pack(">q", offset) + fields))


def due_entry(offset: int, due_ns: int) -> bytes:
    """Of a .due file."""
    fields = struct.pack(">qqI", offset, due_ns, 0)
    return fields + struct.pack(">I", checksum(fields))


def write_segment(folder: Path, first: int, count: int, more: Iterable[int] = (), tail: bytes = b"") -> Written:
    """count messages; more: offsets whose batch continues; tail: bytes behind the records."""
    folder.mkdir(exist_ok=True)
    batches, records, entries, at = set(more), [], [index_head(first)], 0
    for offset in range(first, first + count):
        records.append(record(offset))
        entries.append(entry(first, offset, at, records[-1], offset in batches))
        at += len(records[-1])
    dat, idx = folder / f"{first:020}.dat", folder / f"{first:020}.idx"
    dat.write_bytes(b"".join(records) + tail)
    idx.write_bytes(b"".join(entries))
    return Written(first, first + count, dat, idx, records)
