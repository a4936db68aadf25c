"""Bodies sent piece by piece, as fast as the client reads: they are never in memory as a whole.

A worker thread makes each piece, and without TLS also sends it, straight to the socket. An answer to a client that
does not read takes one piece and no thread.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from itertools import islice
from typing import TypeVar

from nsqc.loop.promise import promise

_Result = TypeVar("_Result")

# A TLS transport buffers this much, and gets it in one piece; others pass all bytes on at once.
_TLS_BUFFER_BYTES = 64 * 1024
_SENT_AT_ONCE = 8 * 1024 * 1024     # by a thread, before it serves other clients
_KEPT_BYTES = 16 * 1024             # passed to the transport, so it reports when there is room again
_WRITTEN_AT_ONCE = 1024 * 1024      # in one system call
_PARTS_AT_ONCE = 64
_PIECE_BYTES = 128 * 1024
_PATIENCE_MS = 2                    # a reading client makes room before the loop could report it
_LAST_CHUNK = b"0\r\n\r\n"

Make = Callable[[int, bool], bytes]     # (about how many bytes, framed as a chunk); returns a piece; b"" at the end


class Stream:
    """A body."""

    length: int | None = None           # bytes; None: unknown until its end
    left: int                           # unsent bytes; for a stream without a length, 0 once all is sent
    patience_s: float | None = None     # how long its client may accept nothing; None: no limit

    @property
    def in_memory(self) -> int:
        """Approximate bytes in memory."""
        return 0        # only a piece, while it is sent

    def send(self, socket: int) -> bytes:
        """Sends to a non-blocking socket for some milliseconds; returns the bytes that the transport has to send next.

        Runs on a worker thread. socket: a descriptor; -1: the transport sends everything. Raises OSError if the rest is
        unreadable.
        """
        raise NotImplementedError


class Held(Stream):
    """A long body in memory, in parts. The loop copies none of it to the socket."""

    def __init__(self, parts: list[bytes], patience_s: float | None) -> None:
        self.patience_s = patience_s
        self._parts = deque(memoryview(part)[at:at + _WRITTEN_AT_ONCE] for part in parts
                            for at in range(0, len(part), _WRITTEN_AT_ONCE))
        self.length = self.left = sum(map(len, self._parts))
        self._spent = 0     # sent bytes of the first part

    @property
    def in_memory(self) -> int:
        return self.left + self._spent

    def send(self, socket: int) -> bytes:
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
        return self._take(_KEPT_BYTES if socket >= 0 else _TLS_BUFFER_BYTES)

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


class Pieces(Stream):
    """An answer of unknown length, made in pieces by a worker thread and sent as chunks."""

    def __init__(self, make: Make, first: bytes, last: bytes, patience_s: float) -> None:
        """first, last: short texts sent before and after the pieces. make is called on worker threads."""
        self.patience_s = patience_s
        self.left = 1           # until all is sent
        self.chunked = True     # else the end of the connection ends the answer
        self._make = make
        self._first = first
        self._last = last
        self._piece = memoryview(b"")
        self._made = False      # this is the last piece

    @property
    def in_memory(self) -> int:
        return len(self._piece)

    def send(self, socket: int) -> bytes:
        allowed = _SENT_AT_ONCE
        while allowed > 0:
            if not self._piece and not self._next():
                self.left = 0
                return b""
            if socket < 0:
                break
            try:
                sent = os.write(socket, self._piece)
            except BlockingIOError:
                if not _has_room_soon(socket):
                    break
                continue
            except ConnectionError:
                break
            self._piece = self._piece[sent:]
            allowed -= sent
        else:
            return b""
        kept = _PIECE_BYTES if socket < 0 else _KEPT_BYTES
        data, self._piece = bytes(self._piece[:kept]), self._piece[kept:]
        return data

    def _next(self) -> bool:
        """Makes the next piece; False: all is sent."""
        if self._made:
            return False
        if self._first:
            piece, self._first = self._framed(self._first), b""
        else:
            piece = self._make(_PIECE_BYTES, self.chunked)
            if not piece:
                self._made = True
                piece = self._framed(self._last) + (_LAST_CHUNK if self.chunked else b"")
        self._piece = memoryview(piece)
        return bool(piece)

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self.chunked and data else data


def _has_room_soon(socket: int) -> bool:
    poll = select.poll()
    poll.register(socket, select.POLLOUT)
    return bool(poll.poll(_PATIENCE_MS))


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
        self._wake: Callable[..., None] = lambda: None
        # Worker threads send after the transport's bytes: it must not buffer any unnoticed.
        transport.set_write_buffer_limits(high=_TLS_BUFFER_BYTES if tls else 0)

    async def run(self) -> None:
        """Returns when all is sent, or the client is gone. Raises OSError if the rest cannot be sent."""
        while self._stream.left and not self._gone:
            if self.paused:
                room, self._wake = promise()
                try:
                    await asyncio.wait_for(room, self._stream.patience_s)
                except TimeoutError:
                    raise OSError(errno.ETIMEDOUT, "the client reads nothing") from None
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
