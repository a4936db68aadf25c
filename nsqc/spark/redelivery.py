"""Recognises messages already in the staging log.

nsqd redelivers a message if its FIN is lost, late, or fails. Two bounded sets of ids recognise that: the last staged
ids, which suffice while deliveries come in order, and suspects, whose FIN may not have reached nsqd. An nsqd that
sends a message has seen the FIN of the message one RDY window before it; so when a connection breaks, the ids of its
last two windows become suspects.
"""

from __future__ import annotations

import threading
from collections import deque

from nsqc.client import Connection
from nsqc.client.batch import Ids
from nsqc.spark.columns import ID_BYTES
from nsqc.spark.recent_ids import RecentIds

RECENT_IDS = 1 << 20
SUSPECT_IDS = 1 << 20


class Window:
    """The last ids delivered by a connection, at least `rows` of them."""

    def __init__(self, rows: int):
        self.ids: deque[Ids] = deque()
        self._keep = rows
        self._rows = 0

    def add(self, ids: Ids) -> None:
        """Adds ids and drops the oldest unneeded ones."""
        self.ids.append(ids)
        self._rows += len(ids) // ID_BYTES
        while self._rows - len(self.ids[0]) // ID_BYTES >= self._keep:
            self._rows -= len(self.ids.popleft()) // ID_BYTES


class Redeliveries:
    """Thread-safe: one thread has the connections, another one stages."""

    def __init__(self) -> None:
        self._recent = RecentIds(RECENT_IDS)
        self._suspects = RecentIds(SUSPECT_IDS)
        self._numbers: dict[str, int] = {}              # of nsqd by address: ids are unique only within one nsqd
        self._windows: dict[Connection, Window] = {}
        self._mutex = threading.RLock()

    def connected(self, connection: Connection, window: int) -> None:
        """Tracks a connection; window: its RDY."""
        with self._mutex:
            self._windows[connection] = Window(2 * window)

    def lost(self, connection: Connection) -> None:
        """The FINs of its last messages may not have arrived."""
        with self._mutex:
            window = self._windows.pop(connection, None)
            for ids in window.ids if window is not None else ():
                self.suspect(connection.address, ids)

    def suspect(self, address: str, ids: Ids) -> None:
        """These ids of an nsqd are staged, but nsqd may redeliver them."""
        self._suspects.remember(ids, self._number(address))

    def fresh(self, address: str, ids: Ids) -> bytearray:
        """A byte for each id: 1 if it was never staged. The ids count as staged from now on."""
        number = self._number(address)
        fresh = self._recent.remember(ids, number)
        if len(self._suspects):
            known = self._suspects.known(ids, number)
            if any(known):
                return bytearray(new and not suspect for new, suspect in zip(fresh, known, strict=True))
        return fresh

    def staged(self, connection: Connection, ids: Ids) -> None:
        """A batch of the connection is about to be synced and finished."""
        with self._mutex:
            window = self._windows.get(connection)
            if window is None:      # lost meanwhile
                self.suspect(connection.address, ids)
            else:
                window.add(ids)

    def _number(self, address: str) -> int:
        with self._mutex:
            return self._numbers.setdefault(address, len(self._numbers))
