"""Bodies sent piece by piece, as fast as the client reads: they are never in memory as a whole.

A worker thread makes each piece, and without TLS also sends it, straight to the socket. An answer to a client that
does not read takes one piece and no thread.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeVar

_Result = TypeVar("_Result")

# A TLS transport buffers this much; others pass all bytes on at once.
_TLS_BUFFER_BYTES = 64 * 1024


class Stream(Protocol):
    """A body."""

    # Read-only: a stream without a length has no number there.
    @property
    def length(self) -> int | None:
        """Bytes; None: unknown until its end."""

    @property
    def patience_s(self) -> float | None:
        """How long its client may accept nothing; None: no limit."""

    @property
    def in_memory(self) -> int:
        """Approximate bytes in memory."""

    left: int       # unsent bytes; for a stream without a length, 0 once all is sent

    def send(self, socket: int) -> bytes:
        """Sends to a non-blocking socket for some milliseconds; returns the bytes that the transport has to send next.

        Runs on a worker thread. socket: a descriptor; -1: the transport sends everything. Raises OSError if the rest is
        unreadable.
        """


class Readers:
    """Worker threads that read files for clients: a few of the daemon's, so other work always finds a free one."""

    def __init__(self, threads: Executor, most: int) -> None:
        self._threads = threads
        self._free = asyncio.Semaphore(most)
        # Held during long work, which calls run() for each part: short work runs in between.
        self.long = asyncio.Lock()

    async def run(self, call: Callable[[], _Result]) -> _Result:
        """Runs a call on a thread, in order of arrival."""
        async with self._free:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def send(self, stream: Stream, transport: asyncio.Transport, tls: bool) -> bytes:
        """The same for a stream's send(); b"": all is sent."""
        async with self._free:
            # The transport may close its descriptor meanwhile, and another client may get its number.
            socket = -1 if tls or transport.is_closing() else _duplicate(transport)
            return await asyncio.get_running_loop().run_in_executor(self._threads, _send, stream, socket)


def _duplicate(transport: asyncio.Transport) -> int:
    try:
        return os.dup(transport.get_extra_info("socket").fileno())
    except OSError:
        return -1       # no descriptor is free: the transport sends


def _send(stream: Stream, socket: int) -> bytes:
    try:
        return stream.send(socket)
    finally:
        if socket >= 0:
            os.close(socket)


class Feeder:
    """Sends one stream after the head of its answer."""

    def __init__(self, readers: Readers, transport: asyncio.Transport, tls: bool, stream: Stream) -> None:
        self.paused = False             # the transport has unsent bytes that the client does not accept
        self._readers = readers
        self._transport = transport
        self._tls = tls
        self._stream = stream
        self._gone = False
        self._room: asyncio.Future[None] | None = None
        # Worker threads send after the transport's bytes: it must not buffer any unnoticed.
        transport.set_write_buffer_limits(high=_TLS_BUFFER_BYTES if tls else 0)

    async def run(self) -> None:
        """Returns when all is sent, or the client is gone. Raises OSError if the rest cannot be sent."""
        while self._stream.left and not self._gone:
            if self.paused:
                self._room = asyncio.get_running_loop().create_future()
                try:
                    await asyncio.wait_for(self._room, self._stream.patience_s)
                except TimeoutError:
                    raise OSError(errno.ETIMEDOUT, "the client takes nothing") from None
                continue
            data = await self._readers.send(self._stream, self._transport, self._tls)
            if data and not self._gone:
                self._transport.write(data)
        if not self._transport.is_closing():
            self._transport.set_write_buffer_limits()

    def in_memory(self) -> int:
        """Bytes of the body that are in memory."""
        return self._stream.in_memory

    def resume(self) -> None:
        """The transport has room again."""
        self.paused = False
        self._wake()

    def stop(self) -> None:
        """The client is gone."""
        self._gone = True
        self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
