"""The lookup server with a watch on its loop, for run.py --watch.

The longest iteration so far is kept in a file of eight bytes: CPU time of the loop's thread, so other processes do not
count. The loop never sleeps here.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
import time

import uvloop

from nsqc.commands.start import lookupd

MEASURE = struct.Struct("d")


class Watch:
    """Begins with the loop."""

    def __init__(self, path: str):
        with open(path, "r+b") as file:
            self.shared = mmap.mmap(file.fileno(), MEASURE.size)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.last = time.thread_time()
        loop.call_soon(self.turn)

    def turn(self) -> None:
        now = time.thread_time()
        if now - self.last > MEASURE.unpack_from(self.shared)[0]:
            MEASURE.pack_into(self.shared, 0, now - self.last)
        self.last = now
        self.loop.call_soon(self.turn)


if __name__ == "__main__":
    watch = Watch(sys.argv[1])
    make = uvloop.new_event_loop

    def new_event_loop() -> uvloop.Loop:
        loop = make()
        watch.begin(loop)
        return loop

    uvloop.new_event_loop = new_event_loop
    sys.exit(lookupd(sys.argv[2:]))
