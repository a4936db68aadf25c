"""A growing file: large writes bypass the page cache, which costs 10% of the processor time."""

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
    """An open file with O_APPEND, for one writing thread; its owner closes the descriptor. size: its size in bytes.

    Every byte is appended once and in order. So the file is always a prefix of its final content, and synced data is
    never rewritten: whole blocks bypass the page cache, the ends of blocks go through it. All raise OSError."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._block = direct_block(descriptor)      # 0: everything goes through the page cache

    def aligned(self, piece: Piece) -> None:
        """Empties a piece for the next write."""
        piece.clear(self.size % self._block if self._block else 0)

    def write(self, text: memoryview) -> None:
        """Writes an aligned piece."""
        if self._block:
            head = -self.size % self._block
            body = (len(text) - head) // self._block * self._block
            if body >= LEAST_DIRECT:
                self._write_all(text[:head])
                text = text[head + self._write_direct(text[head:head + body]):]
        self._write_all(text)

    def copy(self, data: memoryview, piece: Piece) -> None:
        """Writes any memory, through an empty piece if it is large."""
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
        """Returns the bytes written: the rest goes through the page cache, and fails there if the disk is full."""
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
            # The file system lacks direct writes, or requires other blocks, or another process appends to the file,
            # too, so the end is elsewhere: not tried again.
            self._block = 0
        self.size += count
        return count
