"""Nanoseconds per 200-byte record of a disk queue: append, flush, pop.

    python -m perf.micro.bench_diskqueue

Through the Python face of the queue, so the call and its objects are part of it; the last figure is a call alone.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

from nsqc.store.diskqueue import DiskQueue
from nsqc.store.filepool import FilePool
from nsqc.store.syncer import Syncer

RECORDS = 500_000
PER_TURN = 800
BODY = b"x" * 200
MESSAGE_ID = b"0123456789abcdef"
NOW = 1_700_000_000_000_000_000


class NoSync:
    """Takes sync jobs and does nothing: what is measured is the loop's part."""

    def __call__(self, job: Any) -> NoSync:
        return self

    def add_done_callback(self, callback: Any) -> None:
        """Never ends."""


class NoLog:
    def error(self, *line: Any) -> None:
        raise RuntimeError(line)

    warn = info = error


def measure(folder: str) -> dict[str, float]:
    log = NoLog()
    queue = DiskQueue("bench", folder, 100 << 20, 1 << 20, FilePool(8), Syncer(10**9, 10**18, NoSync(), log), log)
    put, get = queue.put, queue.get
    spent = dict.fromkeys(("append", "flush", "pop", "pop of an empty queue"), 0)
    for _ in range(RECORDS // PER_TURN):
        begin = time.perf_counter_ns()
        for _ in range(PER_TURN):
            put(BODY, MESSAGE_ID, NOW)
        middle = time.perf_counter_ns()
        if queue.commit():
            raise OSError("the disk is full")
        spent["append"] += middle - begin
        spent["flush"] += time.perf_counter_ns() - middle
    count = queue.depth
    for name in ("pop", "pop of an empty queue"):
        begin = time.perf_counter_ns()
        for _ in range(count):
            get()
        spent[name] = time.perf_counter_ns() - begin
    queue.delete()
    return {name: ns / count for name, ns in spent.items()}


def main() -> None:
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            print("  ".join(f"{name} {ns:.0f} ns" for name, ns in measure(folder).items()))


if __name__ == "__main__":
    main()
