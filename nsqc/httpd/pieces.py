"""An answer of unknown length, made in pieces by a worker thread and sent as chunks."""

from __future__ import annotations

import os
import select
from collections.abc import Callable

_PIECE_BYTES = 128 * 1024
_SENT_AT_ONCE = 8 * 1024 * 1024     # by a thread, before it serves other clients
_KEPT_BYTES = 16 * 1024             # passed to the transport, so it reports when there is room again
_PATIENCE_MS = 2                    # a reading client makes room before the loop could report it
_LAST_CHUNK = b"0\r\n\r\n"

Make = Callable[[int, bool], bytes]     # (about how many bytes, framed as a chunk); returns a piece; b"" at the end


class Pieces:
    """A Stream without a length."""

    length = None

    def __init__(self, make: Make, first: bytes, last: bytes, patience_s: float) -> None:
        """first, last: short texts sent before and after the pieces. make is called on worker threads.
        patience_s: how long a client may accept nothing."""
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
        """See Stream."""
        return len(self._piece)

    def send(self, socket: int) -> bytes:
        """See Stream."""
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
