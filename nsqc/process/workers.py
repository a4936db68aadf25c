"""Threads for work that would keep the loop busy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class Workers(ThreadPoolExecutor):
    """A pool that accepts work as long as it has a thread, and always has one.

    The pool of the standard library starts its threads as work comes, and refuses work, although it has queued it, when
    the system has no more threads to give.
    """

    def __init__(self, most: int, name: str) -> None:
        """Starts the first of at most this many threads. Raises RuntimeError if the system has none to give."""
        super().__init__(most, thread_name_prefix=name)
        self.submit(int)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise
