"""The connection to an nsqlookupd: commands out, replies in.

Bytes: the magic, then commands that end with a newline; IDENTIFY has a body after its 4-byte length. Replies come in
the order of the commands, each a 4-byte length and that many bytes: OK, an error that begins with E_, or JSON for
IDENTIFY.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from nsqc.peers.dial import Caller

MAGIC = b"  V1"
MAX_REPLY = 64 * 1024  # bytes
FIRST_BYTES = 64


class ConnectionEnded(Exception):
    """The connection is no longer usable."""


class LookupConnection(Caller):
    """One connection. on_lost() is called when it has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[], None]):
        self.end = ""               # why it ended; empty: still open
        self.first = b""            # first received bytes, which identify the service
        self._loop = loop
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._unparsed = bytearray()
        self._replies: list[bytes] = []
        self._missing = 0           # outstanding replies
        self._answered: asyncio.Future[list[bytes]] | None = None

    async def ask(self, commands: list[bytes], limit_s: float) -> list[bytes]:
        """Sends commands; returns their replies. Raises TimeoutError or ConnectionEnded, after which it is unusable."""
        if self.end:
            raise ConnectionEnded(self.end)
        assert self._transport is not None, "nobody asks before it is connected"
        self._missing, self._replies = len(commands), []
        self._answered = self._loop.create_future()
        self._transport.write(b"".join(commands))
        try:
            async with asyncio.timeout(limit_s):
                return await self._answered
        finally:
            self._missing = 0

    def close(self) -> None:
        """Closes; immediately if the other side does not read."""
        if self._transport is not None and self._transport.get_write_buffer_size() == 0:
            self._transport.close()
        else:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------ called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(MAGIC)

    def data_received(self, data: bytes) -> None:
        if len(self.first) < FIRST_BYTES:
            self.first += data[:FIRST_BYTES]
        self._unparsed += data
        at, end = 0, len(self._unparsed)
        while end - at >= 4:
            # Read as unsigned, so a negative length is refused as too large.
            size = int.from_bytes(self._unparsed[at:at + 4], "big")
            if size > MAX_REPLY:
                self._fail(f"reply of {size} bytes is larger than {MAX_REPLY}")
                return
            if end - at - 4 < size:
                break
            if not self._accept(bytes(self._unparsed[at + 4:at + 4 + size])):
                return
            at += 4 + size
        del self._unparsed[:at]

    def _accept(self, reply: bytes) -> bool:
        if self._missing == 0:
            self._fail("a reply without a command")
            return False
        self._replies.append(reply)
        self._missing -= 1
        if self._missing == 0 and self._answered is not None and not self._answered.done():
            self._answered.set_result(self._replies)
        return True

    def _fail(self, reason: str) -> None:
        self.end = reason
        self._unparsed.clear()
        self.abort()
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(ConnectionEnded(reason))
            # Marks it as retrieved: the caller may have given up.
            self._answered.exception()
        self._on_lost()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.end:
            self._fail(f"connection closed{f' - {error}' if error else ''}")
