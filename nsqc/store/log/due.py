"""Due times of deferred messages (.due files)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from nsqc.store.files import read_file
from nsqc.store.log.format import DUE_ENTRY, checksum

ENTRY = struct.Struct(">qqII")


class DueFile(NamedTuple):
    """What a .due file says."""

    entries: list[tuple[int, int]]  # offset, due time in ns since 1970
    damaged: int  # entries
    torn: int  # bytes of half an entry at the end


def read_due(path: str) -> DueFile:
    """Raises OSError."""
    data = read_file(path)
    entries, damaged = [], 0
    for at in range(0, len(data) - DUE_ENTRY + 1, DUE_ENTRY):
        offset, due, _, crc = ENTRY.unpack_from(data, at)
        if crc == checksum(data[at:at + DUE_ENTRY - 4]):
            entries.append((offset, due))
        else:
            damaged += 1
    return DueFile(entries, damaged, len(data) % DUE_ENTRY)


def encode(entries: list[tuple[int, int]]) -> bytes:
    """The file."""
    out = bytearray()
    for offset, due in entries:
        fields = struct.pack(">qqI", offset, due, 0)
        out += fields + struct.pack(">I", checksum(fields))
    return bytes(out)
