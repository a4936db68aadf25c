"""Measures how long this machine blocks a writer: a journal's promises count from when it could be written."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

STEP_SECONDS = 0.005


class Stalls(threading.Thread):
    """Writes a little to a file all the time and records slow writes: waits for the disk or for a processor."""

    def __init__(self, path: Path):
        super().__init__(daemon=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        self._stopping = threading.Event()
        self._seen: list[tuple[float, float]] = []      # end time, duration

    def __enter__(self) -> Stalls:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join()
        os.close(self._file)

    def run(self) -> None:
        at, began = 0, time.monotonic()
        while not self._stopping.is_set():
            # Set the file's times, too: metadata changes wait while the file system commits, and so does appending to a
            # file that has been synced, but not to a new one.
            os.pwrite(self._file, b"x" * 512, at)
            os.utime(self._file)
            at += 512
            time.sleep(STEP_SECONDS)
            now = time.monotonic()
            self._seen.append((now, now - began - STEP_SECONDS))
            began = now

    def longest(self, since: float) -> float:
        """Seconds of the longest wait that ended after a moment of time.monotonic()."""
        return max((took for ended, took in list(self._seen) if ended >= since), default=0.0)
