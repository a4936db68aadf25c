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
    sound: bytes  # as the file has them
    damaged: int  # entries
    torn: int  # bytes of half an entry at the end


def read_due(path: str) -> DueFile:
    """Raises OSError."""
    data = read_file(path)
    entries, sound, damaged = [], bytearray(), 0
    for at in range(0, len(data) - DUE_ENTRY + 1, DUE_ENTRY):
        offset, due, _, crc = ENTRY.unpack_from(data, at)
        if crc == checksum(data[at:at + DUE_ENTRY - 4]):
            entries.append((offset, due))
            sound += data[at:at + DUE_ENTRY]
        else:
            damaged += 1
    return DueFile(entries, bytes(sound), damaged, len(data) % DUE_ENTRY)
