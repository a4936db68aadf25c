"""Segments of a log, written by the book: what docs/ondisk.md says, in plain Python."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from nsqc.store.log.format import TIME_UNIT, checksum

BASE_NS = 1_700_000_000_000_000_000


class Written(NamedTuple):
    """A segment on disk. places: where each record begins, and where the last one ends."""

    path: Path      # without .dat
    first: int
    records: list[bytes]
    places: list[int]

    @property
    def triple(self) -> tuple[int, int, int]:
        """As TopicLog lists it."""
        return self.first, self.first + len(self.records), self.places[-1]

    def damage(self, position: int, kind: str = "dat") -> None:
        """Flips a bit of a file."""
        path = self.path.with_suffix(f".{kind}")
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)

    def damage_entry(self, offset: int) -> None:
        """Flips a bit of a record's index entry."""
        self.damage(32 + 16 * (offset - self.first) + 3, "idx")


def record(body: bytes, timestamp: int, number: int, attempts: int = 0) -> bytes:
    """A record; number: its id."""
    return struct.pack(">iqH16s", 26 + len(body), timestamp, attempts, b"%016x" % number) + body


def write_segment(folder: Path, first: int, bodies: list[bytes], time_ns: int = BASE_NS, step_ns: int = 1_000_000,
                  base_ns: int = BASE_NS) -> Written:
    """Writes a segment with its index: one record each step_ns from time_ns on."""
    records = [record(body, time_ns + number * step_ns, first + number) for number, body in enumerate(bodies)]
    head = struct.pack(">8sqqI", b"NSQCIDX1", first, base_ns, 0)
    index = [head + struct.pack(">I", checksum(head))]
    places = [0]
    for number, data in enumerate(records):
        units = max(0, time_ns + number * step_ns - base_ns) // TIME_UNIT
        entry = struct.pack(">III", places[-1], units, checksum(data))
        index.append(entry + struct.pack(">I", checksum(struct.pack(">q", first + number) + entry)))
        places.append(places[-1] + len(data))
    path = folder / f"{first:020d}"
    path.with_suffix(".dat").write_bytes(b"".join(records))
    path.with_suffix(".idx").write_bytes(b"".join(index))
    return Written(path, first, records, places)
