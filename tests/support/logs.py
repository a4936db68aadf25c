"""Records of disk queues, in plain Python."""

from __future__ import annotations

import struct


def record(body: bytes, timestamp: int, number: int, attempts: int = 0) -> bytes:
    """A record; number: its id."""
    return struct.pack(">iqH16s", 26 + len(body), timestamp, attempts, b"%016x" % number) + body
