"""The latest changes, for the page. The audit log has all of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypedDict

from nsqc.admin.changes import Result

KEPT = 200


class Entry(TypedDict):
    """A change."""

    time: float
    user: str
    address: str
    action: str
    target: str
    results: list[Result]


class Ledger:
    """The latest changes."""

    def __init__(self) -> None:
        self._entries: deque[tuple[str, Entry]] = deque(maxlen=KEPT)

    def add(self, user: str, address: str, action: str, target: str, topic: str, results: Sequence[Result]) -> None:
        """One more. topic: that it is about; empty: it is about a node."""
        self._entries.append((topic, {"time": round(time.time(), 3), "user": user, "address": address, "action": action,
                                      "target": target, "results": list(results)[:64]}))

    def newest(self, sees: Callable[[str], bool]) -> list[Entry]:
        """The newest first. sees: whether the user sees a topic, or everything."""
        return [entry for topic, entry in reversed(self._entries) if sees(topic)]
