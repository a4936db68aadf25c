"""The trace that the preloaded shim writes: file operations below a folder, and faults requested from the shim.

A position is a number of bytes of records; a publisher that reads `position` after an OK knows that all operations that
this OK relies on have been recorded before it.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perf.programs import program

SHIM = [Path(__file__).with_name(name) for name in ("shim.c", "refused.c")]
ROOM = 1 << 30                          # of a trace; the file is sparse
CONTROL = struct.Struct("=3Q13q")
SIZE, KILL, FAILING = 0, 16, 32         # their places in the control block
FAULT = struct.Struct("=4q")
FAULTS = ("write", "read", "sync")
RECORD = struct.Struct("=4IQq")
KINDS = ("", "folder", "file", "write", "truncate", "grow", "sync", "synced", "lost", "create", "mkdir", "rename", "link",
         "unlink", "rmdir", "start")


@dataclass(frozen=True)
class Event:
    """One record; `end` is the position after it."""

    begin: int
    end: int
    kind: str
    inode: int
    at: int         # position; size of truncate and grow; for synced and lost: where the record of their sync begins
    path: str       # below the folder
    to: str
    data: bytes


class Trace:
    """A growing or complete trace."""

    def __init__(self, path: Path, folder: Path, room: int = ROOM):
        """path: the trace file, outside the folder; room: bytes of its records, above which the process ends."""
        self.path = path
        self.folder = folder
        with path.open("wb") as file:
            file.truncate(CONTROL.size + room)
            file.write(CONTROL.pack(0, room, *[0] * 14))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), CONTROL.size + room)

    def close(self) -> None:
        """Removes the trace."""
        self._map.close()
        self.path.unlink()

    def environment(self) -> dict[str, str]:
        """For the daemon: this process's variables and those of the shim."""
        shim = program("power-shim.so", SHIM, "-shared", "-fPIC", "-ldl")
        return {**os.environ, "LD_PRELOAD": str(shim), "NSQC_TEST_TRACE": str(self.path), "NSQC_TEST_TRACE_ROOT": str(self.folder)}

    @property
    def position(self) -> int:
        """Bytes of records so far."""
        return struct.unpack_from("=Q", self._map, SIZE)[0]

    def kill_with(self, count: int, *kinds: str) -> None:
        """The process kills itself (SIGKILL) with the last of this many records of these kinds, by default of all."""
        bits = sum(1 << KINDS.index(kind) for kind in kinds or KINDS[1:])
        struct.pack_into("=Qq", self._map, KILL, bits, count)

    def fail(self, call: str, error: int = errno.EIO, skip: int = 0, times: int = 1) -> None:
        """Makes the next calls fail: "write", "read" or "sync"; the first `skip` still succeed. times=0 ends that."""
        place = FAILING + FAULT.size * FAULTS.index(call)
        struct.pack_into("=q", self._map, place + 8, 0)
        FAULT.pack_into(self._map, place, skip, times, error, self.failed(call))

    def failed(self, call: str) -> int:
        """The number of calls that failed on request."""
        return FAULT.unpack_from(self._map, FAILING + FAULT.size * FAULTS.index(call))[3]

    def events(self, begin: int = 0) -> Iterator[Event]:
        """The records so far, from a position on."""
        end = self.position
        while begin < end:
            kind, path, to, data, inode, at = RECORD.unpack_from(self._map, CONTROL.size + begin)
            place = CONTROL.size + begin + RECORD.size
            behind = place + path + to + data
            yield Event(begin, behind - CONTROL.size, KINDS[kind], inode, at, self._map[place:place + path].decode(),
                        self._map[place + path:place + path + to].decode(), self._map[place + path + to:behind])
            begin = behind - CONTROL.size
