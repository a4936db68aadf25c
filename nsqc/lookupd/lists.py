"""JSON lists and objects of any length, built in small steps and sent in parts."""

from __future__ import annotations

from collections.abc import Iterable

from nsqc.httpd.reply import JSON, Reply
from nsqc.loop.share import Share

AT_ONCE = 64                # items between two clock reads
PART_BYTES = 64 * 1024


class Parts:
    """Collects an answer."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._parts: list[bytes] = []
        self._open: list[bytes] = []
        self._size = 0

    def add(self, text: bytes) -> None:
        """Appends text."""
        self._open.append(text)
        self._size += len(text)
        if self._size >= PART_BYTES:
            self._close()

    async def items(self, items: Iterable[bytes], head: bytes = b"", tail: bytes = b"") -> None:
        """Items with commas between them, each built on demand, after a head and before a tail."""
        self.add(head)
        waiting: list[bytes] = []
        first = True
        for item in items:
            waiting.append(item)
            if len(waiting) == AT_ONCE:
                self.add(b",".join(waiting) if first else b"," + b",".join(waiting))
                first = False
                waiting.clear()
                await self._share.rest()
        if waiting:
            self.add(b",".join(waiting) if first else b"," + b",".join(waiting))
        self.add(tail)

    def reply(self) -> Reply:
        """The answer."""
        self._close()
        return Reply(200, b"", JSON, nsq=True, parts=self._parts)

    def _close(self) -> None:
        self._parts.append(b"".join(self._open))
        self._open.clear()
        self._size = 0
