"""Retries while a node does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from nsqc.spark.log.errors import BadAnswer, Unreachable

T = TypeVar("T")
LONGEST_PAUSE = 5.0


def patiently(call: Callable[[], T], seconds: float, pause: float) -> T:
    """The result of a call that is retried for this long while its node is unreachable, or answers unexpectedly: a
    proxy in front of a starting node may do that. Raises the last error."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (Unreachable, BadAnswer):
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            time.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)
