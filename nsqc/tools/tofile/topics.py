"""Finds topics by a pattern: queries nsqlookupd at intervals, on a thread."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from nsqc.client.errors import ClientError
from nsqc.tools.errors import ToolError

if TYPE_CHECKING:
    from nsqc.tools.cluster import Cluster


class Discovery:
    """found() returns new topics once. interval: seconds between two lists."""

    def __init__(self, cluster: Cluster, pattern: re.Pattern[str] | None, interval: float,
                 warn: Callable[[str], None], wake: Callable[[], None]):
        self._cluster, self._pattern, self._interval = cluster, pattern, interval
        self._warn, self._wake = warn, wake
        self._names: list[str] = []
        self._failure = ""
        self._is_asking = False
        self._next = 0.0

    def found(self) -> list[str]:
        """Topics of the last list; requests the next one when due."""
        now = time.monotonic()
        if self._failure:
            self._warn(self._failure)
            self._failure = ""
        if now >= self._next and not self._is_asking:
            self._is_asking = True
            self._next = now + self._interval
            threading.Thread(target=self._ask, daemon=True).start()
        names, self._names = self._names, []
        return [name for name in names if self._pattern is None or self._pattern.search(name)]

    def _ask(self) -> None:
        try:
            self._names = self._cluster.topic_names()
        except (ToolError, ClientError, OSError, ValueError) as error:
            self._failure = str(error)
        self._is_asking = False
        self._wake()
