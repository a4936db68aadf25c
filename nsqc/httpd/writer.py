"""The sending end of a connection: one write per loop iteration, and an end that loses no answer."""

from __future__ import annotations

import asyncio

# Sends collected answers before the iteration ends once they exceed this.
_FLUSH_BYTES = 64 * 1024
# Seconds that a connection with unread input stays half open at its end, so that its client can read the answer.
_LINGER_SECONDS = 0.5
# Timeout of a closed connection whose client accepts nothing: by then its network has resent lost packets.
_GIVE_UP_SECONDS = 5.0


class Writer:
    """Collects answers, sends them, closes the transport."""

    __slots__ = ("_giving_up", "_loop", "_out_bytes", "_tls", "eof", "out", "transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, tls: bool) -> None:
        self.transport = transport
        self.out: list[bytes] = []              # this iteration's answers
        self.eof = False                        # the client sends no more
        self._out_bytes = 0                     # of out, excluding replies to plain publishes
        self._loop = loop
        self._tls = tls
        self._giving_up: asyncio.TimerHandle | None = None  # closed, but the client has not read everything

    def add(self, data: bytes, parts: list[bytes]) -> None:
        """Adds an answer; parts: the rest of it."""
        self.out.append(data)
        self._out_bytes += len(data)
        if parts:
            self.out += parts
            self._out_bytes += sum(map(len, parts))
        if self._out_bytes > _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Passes the collected answers to the transport."""
        out = self.out
        if out and not self.transport.is_closing():
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()
        self._out_bytes = 0

    def unsent(self) -> int:
        """Bytes that the kernel has not accepted yet."""
        return self.transport.get_write_buffer_size()

    def end(self, unread: bool) -> None:
        """Closes after the collected answers; unread: the client may still be sending."""
        self.flush()
        if self.transport.is_closing():
            return
        if unread and not self.eof and self.transport.can_write_eof():
            # Closing with unread input would reset the connection, and the client would lose the answer.
            self.transport.write_eof()
            self._loop.call_later(_LINGER_SECONDS, self.close)
            self.transport.resume_reading()
        else:
            self.close()

    def close(self) -> None:
        """Closes the transport when it is empty, or its client has accepted nothing for too long."""
        self.transport.close()
        left = self.unsent()
        # Under TLS the client also has to confirm the end.
        if (left or self._tls) and self._giving_up is None:
            self._giving_up = self._loop.call_later(_GIVE_UP_SECONDS, self._give_up, left)

    def closed(self) -> None:
        """The transport has closed."""
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _give_up(self, before: int) -> None:
        left = self.unsent()
        if left < before:
            self._giving_up = self._loop.call_later(_GIVE_UP_SECONDS, self._give_up, left)
        else:
            self._giving_up = None
            self.transport.abort()
