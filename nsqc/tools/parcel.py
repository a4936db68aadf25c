"""The unit of publishing: a command with its answers, which can be resent, or split in halves."""

from __future__ import annotations

import struct
from collections.abc import Iterable

SIZE = struct.Struct(">i")


class Parcel:
    """command: an MPUB, or consecutive DPUBs. count: messages; answers: expected OKs. note: data for the publisher,
    returned with the answer."""

    __slots__ = ("acknowledged", "answers", "command", "count", "is_deferred", "note", "topic", "was_sent")

    def __init__(self, topic: bytes, command: bytes, count: int, is_deferred: bool = False, note: object = None):
        self.topic, self.command, self.count, self.is_deferred, self.note = topic, command, count, is_deferred, note
        self.answers = count if is_deferred else 1
        self.acknowledged = 0       # answers so far
        self.was_sent = False       # to an nsqd that has not answered

    def rest(self) -> Parcel:
        """The unacknowledged messages: all of an MPUB, because it is published as a whole or not at all."""
        if not self.acknowledged:
            return self
        line, bodies = self._opened()
        return packed(self.topic, line, bodies[self.acknowledged:], self.is_deferred, self.note)

    def halves(self) -> list[Parcel]:
        """Splits it in two; empty if it has a single message."""
        line, bodies = self._opened()
        middle = len(bodies) // 2
        if not middle:
            return []
        return [packed(self.topic, line, part, self.is_deferred, self.note)
                for part in (bodies[:middle], bodies[middle:])]

    def size(self) -> int:
        """Size of its first body, bytes."""
        return len(self._opened()[1][0])

    def _opened(self) -> tuple[bytes, list[bytes]]:
        """The command line, and the bodies."""
        line = self.command[:self.command.index(b"\n") + 1]
        bodies = []
        at = len(line) + (0 if self.is_deferred else 2 * SIZE.size)
        for _ in range(self.count):
            size = SIZE.unpack_from(self.command, at)[0]
            bodies.append(self.command[at + SIZE.size:at + SIZE.size + size])
            at += SIZE.size + size + (len(line) if self.is_deferred else 0)
        return line, bodies


def packed(topic: bytes, line: bytes, bodies: Iterable[bytes], is_deferred: bool, note: object = None) -> Parcel:
    """Builds a parcel of bodies. line: of the MPUB or DPUB."""
    records = [SIZE.pack(len(body)) + body for body in bodies]
    if is_deferred:
        return Parcel(topic, b"".join(line + record for record in records), len(records), True, note)
    content = SIZE.pack(len(records)) + b"".join(records)
    return Parcel(topic, line + SIZE.pack(len(content)) + content, len(records), False, note)
