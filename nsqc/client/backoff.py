"""Pauses between retries."""

from __future__ import annotations

from typing import NamedTuple

LONGEST_PAUSE = 30.0
MOST_DOUBLINGS = 20     # keeps the power small; the longest pause is reached long before


class Backoff(NamedTuple):
    """Pauses that double from first up to longest, in seconds."""

    first: float
    longest: float = LONGEST_PAUSE

    def pause(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row."""
        return min(self.first * 2 ** min(failures - 1, MOST_DOUBLINGS), self.longest) if failures else 0.0
