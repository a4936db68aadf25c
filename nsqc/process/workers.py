"""Threads for work that would keep the loop busy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class Workers(ThreadPoolExecutor):
    """A pool that accepts work as long as it has a thread, and always has at least one.

    The standard library's pool starts threads on demand and, if the system has no more threads, refuses work it has
    already queued.
    """

    def __init__(self, most: int, name: str) -> None:
        """Starts the first thread of up to this many. Raises RuntimeError if the system has none."""
        super().__init__(most, thread_name_prefix=name)
        self.submit(int)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise
