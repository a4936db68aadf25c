"""A long body in memory. Worker threads send it: the loop copies none of it to the socket."""

from __future__ import annotations

import os
from collections import deque
from itertools import islice

_SENT_AT_ONCE = 8 * 1024 * 1024     # by a thread, before it serves other clients
_WRITTEN_AT_ONCE = 1024 * 1024      # in one system call
_PARTS_AT_ONCE = 64
_KEPT_BYTES = 16 * 1024             # passed to the transport, so it reports when there is room again
_PIECE_BYTES = 64 * 1024            # the same, if the transport sends everything


class Held:
    """A Stream of parts."""

    def __init__(self, parts: list[bytes], patience_s: float | None) -> None:
        """patience_s: see Stream."""
        self.patience_s = patience_s
        self._parts = deque(memoryview(part)[at:at + _WRITTEN_AT_ONCE] for part in parts
                            for at in range(0, len(part), _WRITTEN_AT_ONCE))
        self.length = self.left = sum(map(len, self._parts))
        self._spent = 0     # sent bytes of the first part

    @property
    def in_memory(self) -> int:
        """See Stream."""
        return self.left + self._spent

    def send(self, socket: int) -> bytes:
        """See Stream."""
        allowed = _SENT_AT_ONCE if socket >= 0 else 0
        while self._parts and allowed > 0:
            try:
                sent = os.writev(socket, list(islice(self._parts, _PARTS_AT_ONCE)))
            except (BlockingIOError, ConnectionError):
                break       # the transport will report the cause
            allowed -= sent
            self._skip(sent)
        else:
            if self._parts and socket >= 0:
                return b""
        return self._take(_KEPT_BYTES if socket >= 0 else _PIECE_BYTES)

    def _take(self, count: int) -> bytes:
        """The next bytes, at most count."""
        taken = b""
        if self._parts:
            taken = bytes(self._parts[0][:count])
            self._skip(len(taken))
        return taken

    def _skip(self, count: int) -> None:
        """Counts bytes as sent, and frees their parts."""
        self.left -= count
        while count:
            part = self._parts.popleft()
            taken = min(len(part), count)
            if taken < len(part):
                self._parts.appendleft(part[taken:])
            count -= taken
            self._spent += taken
            if not self._parts or self._parts[0].obj is not part.obj:
                self._spent = 0
