"""The segments of a running log, for who searches them: nothing is copied, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from nsqc.store.log.topiclog import TopicLog

Bounds = tuple[int, int, int, int]  # as in files.py


class SegmentTable(Sequence[Bounds]):
    """The segments there were when it was made, oldest first; the newest as it was then.

    Worker threads may use it while the log goes on: a step is one call that the loop cannot interrupt. Raises
    FileNotFoundError for a segment that retention has removed meanwhile.
    """

    def __init__(self, log: TopicLog):
        self._log = log
        self._first, self._end = log.segment_numbers
        self._newest = log.numbered(self._end - 1, 1)

    def __len__(self) -> int:
        return self._end - self._first

    @overload
    def __getitem__(self, index: int) -> Bounds: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Bounds]: ...

    def __getitem__(self, index: int | slice) -> Bounds | Sequence[Bounds]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        (found,) = self.some(at, 1)
        return found

    def some(self, at: int, most: int) -> list[Bounds]:
        """The segment at an index and those behind it, at most so many."""
        end = min(at + most, len(self))
        found = self._log.numbered(self._first + at, end - at)
        if not found:
            raise FileNotFoundError(f"segment {self._first + at} of {self._log.folder}")
        return found if end < len(self) else found[:-1] + self._newest
