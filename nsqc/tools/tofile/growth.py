"""A file that grows: what is large goes past the page cache, which costs a tenth of the processor time."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

from nsqc.tools.tofile.piece import direct_block

if TYPE_CHECKING:
    from nsqc.tools.tofile.piece import Piece

LEAST_DIRECT = 128 << 10    # bytes; less is not worth the two short writes around it
APPENDED = os.O_APPEND      # the flags that can be changed


class Growth:
    """An open file with O_APPEND, for one thread that writes; its owner closes the descriptor. size: bytes of it.

    Every byte is appended once and in order. So at any time the file is a beginning of what it will be, and what was
    synced is never written again: whole blocks go past the page cache, the ends of blocks through it. All raise
    OSError."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._block = direct_block(descriptor)      # 0: everything goes through the page cache

    def aligned(self, piece: Piece) -> None:
        """Empties a piece for what is to be written next."""
        piece.clear(self.size % self._block if self._block else 0)

    def write(self, text: memoryview) -> None:
        """Of a piece that was aligned."""
        if self._block:
            head = -self.size % self._block
            body = (len(text) - head) // self._block * self._block
            if body >= LEAST_DIRECT:
                self._write_all(text[:head])
                text = text[head + self._write_direct(text[head:head + body]):]
        self._write_all(text)

    def copy(self, data: memoryview, piece: Piece) -> None:
        """Of any memory, by way of an empty piece if it is large."""
        if not self._block or len(data) < LEAST_DIRECT:
            self._write_all(data)
            return
        while data:
            self.aligned(piece)
            data = data[piece.put(data):]
            with memoryview(piece) as text:
                self.write(text)
        piece.clear(0)

    def _write_all(self, data: memoryview) -> None:
        while data:
            count = os.write(self.descriptor, data)
            self.size += count
            data = data[count:]

    def _write_direct(self, blocks: memoryview) -> int:
        """How many bytes were written: the rest goes through the page cache, and fails there if there is no room."""
        count = 0
        try:
            fcntl.fcntl(self.descriptor, fcntl.F_SETFL, APPENDED | os.O_DIRECT)
            try:
                count = os.write(self.descriptor, blocks)
            finally:
                fcntl.fcntl(self.descriptor, fcntl.F_SETFL, APPENDED)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # The file system does not write so, or asks for other blocks, or another process appends to the file, too,
            # and so the end is elsewhere: it is not tried again.
            self._block = 0
        self.size += count
        return count
