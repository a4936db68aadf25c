"""Records of a disk queue: append, flush, pop (nsqc.store.disk)."""

import tempfile
import time
from typing import Any

from nsqc.store.disk.fileio import IoPool
from nsqc.store.disk.manager import Syncer
from nsqc.store.disk.queue import DiskQueue
from perf.micro import timing
from perf.micro.timing import Row, Size
from tests.compiled import diskqueue

TITLE = "diskqueue: nanoseconds a record of 200 bytes, calls and objects included"
RECORDS = 200_000
PER_WRITE = 800
BODY = b"x" * 200
RECORD_BYTES = 4 + 26 + len(BODY)
MESSAGE_ID = b"0123456789abcdef"
NOW = 1_700_000_000_000_000_000


class NoSync:
    """Accepts sync jobs and does nothing: only the loop's part is measured."""

    def __call__(self, job: Any) -> "NoSync":
        return self

    def add_done_callback(self, callback: Any) -> None:
        """The job never ends."""


class NoLog:
    """A log that must remain empty."""

    def error(self, *line: Any) -> None:
        """Ends the bench."""
        raise RuntimeError(line)

    warn = info = error


def once(folder: str, writes: int) -> dict[str, float]:
    """Fills and drains a queue: nanoseconds a record for each step."""
    log = NoLog()
    queue = DiskQueue("bench", folder, 100 << 20, 1 << 20, IoPool(), Syncer(10**9, 10**18, NoSync(), log), log)
    spent = dict.fromkeys(("append", "flush", "pop"), 0)
    for _ in range(writes):
        begin = time.perf_counter_ns()
        for _ in range(PER_WRITE):
            diskqueue.put(queue, BODY, MESSAGE_ID, NOW)
        middle = time.perf_counter_ns()
        if diskqueue.commit(queue):
            raise OSError("the disk is full")
        spent["append"] += middle - begin
        spent["flush"] += time.perf_counter_ns() - middle
    begin = time.perf_counter_ns()
    for _ in range(queue.depth):
        diskqueue.get(queue)
    spent["pop"] = time.perf_counter_ns() - begin
    queue.delete()
    return {name: spent_ns / (writes * PER_WRITE) for name, spent_ns in spent.items()}


def plain(folder: str, writes: int) -> dict[str, float]:
    """The reference: the same bytes with an ordinary file."""
    record = b"x" * RECORD_BYTES
    spent = dict.fromkeys(("append", "flush", "pop"), 0)
    with open(f"{folder}/plain", "w+b", buffering=0) as file:
        for _ in range(writes):
            begin = time.perf_counter_ns()
            buffer = bytearray()
            for _ in range(PER_WRITE):
                buffer.extend(record)
            middle = time.perf_counter_ns()
            file.write(buffer)
            spent["append"] += middle - begin
            spent["flush"] += time.perf_counter_ns() - middle
        file.seek(0)
        begin = time.perf_counter_ns()
        while file.read(1 << 18):
            pass
        spent["pop"] = time.perf_counter_ns() - begin
    return {name: spent_ns / (writes * PER_WRITE) for name, spent_ns in spent.items()}


def bench(size: Size) -> list[Row]:
    """The best of each step over several queues."""
    writes, own, reference = size.of(RECORDS // PER_WRITE), [], []
    for _ in range(size.repeats):
        with tempfile.TemporaryDirectory() as folder:
            own.append(once(folder, writes))
            reference.append(plain(folder, writes))
    return [Row(name, min(run[name] for run in own), f"a plain file, {what}", min(run[name] for run in reference))
            for name, what in (("append", "bytearray.extend"), ("flush", "write"), ("pop", "read of 256 KiB"))]


if __name__ == "__main__":
    timing.main(TITLE, bench)
