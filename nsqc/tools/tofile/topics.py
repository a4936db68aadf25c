"""Finds topics by a pattern: queries nsqlookupd at intervals, on a thread."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from nsqc.client.dialer import Dialer

if TYPE_CHECKING:
    from nsqc.tools.cluster import Cluster


class Discovery:
    """found() returns new topics once. interval: seconds between two lists."""

    def __init__(self, cluster: Cluster, pattern: re.Pattern[str], interval: float,
                 warn: Callable[[str], None], wake: Callable[[], None]):
        self._cluster, self._pattern, self._interval, self._warn = cluster, pattern, interval, warn
        self._dialer: Dialer[None, list[str]] = Dialer(wake)
        self._next = 0.0

    def found(self) -> list[str]:
        """Topics of the last list; requests the next one when due."""
        names: list[str] = []
        for _, outcome in self._dialer.finished():
            if isinstance(outcome, Exception):
                self._warn(str(outcome))
            else:
                names = [name for name in outcome if self._pattern.search(name)]
        if time.monotonic() >= self._next and self._dialer.start(None, self._cluster.topic_names):
            self._next = time.monotonic() + self._interval
        return names
