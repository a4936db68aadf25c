"""Deflate. Libraries do the work; this limits their output per call, and stores small flushes uncompressed.

Up to level 6, ISA-L compresses: several times faster than zlib, whose output is about 10% smaller. Clients that ask
for levels 7 to 9 want that 10%, and get zlib. zlib decompresses at any level.
"""

cimport cython
from libc.string cimport memcmp, memcpy, memmove
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from nsqc.wire.codec cimport PIECE_BYTES
from nsqc.wire.inbuf cimport inbuf_append, inbuf_drop, inbuf_free

import zlib

from nsqc.wire.codec import CodecError

try:
    from isal import isal_zlib
except ImportError:     # not available for this machine: see pyproject.toml
    isal_zlib = None

cdef enum:
    SLICE_BYTES = 16384     # of input per call: zlib copies the input it does not consume
    WINDOW_BYTES = 32768    # farthest back-reference of a stream

# ISA-L's levels by deflate's; for others, zlib is used.
cdef dict ISAL_LEVELS = {1: 1, 2: 1, 3: 2, 4: 2, 5: 2, 6: 3}


@cython.final
cdef class Deflate(Codec):
    """level is 1 to 9."""

    def __init__(self, int level):
        self.name = "deflate"
        self.inflater = zlib.decompressobj(-15)
        self.level = level
        self.rest = b""

    def __dealloc__(self):
        inbuf_free(&self.unseen)

    cdef int feed(self, const char *c_from, Py_ssize_t length) except -1:
        if length >= 4:
            memcpy(self.last, c_from + length - 4, 4)
        elif length > 0:
            memmove(self.last, self.last + length, <size_t> (4 - length))
            memcpy(self.last + 4 - length, c_from, <size_t> length)
        self.begun = True
        return Codec.feed(self, c_from, length)

    cdef Py_ssize_t decode(self, char *c_to) except -1:
        cdef Py_ssize_t length = 0
        cdef Py_ssize_t slice_bytes
        cdef bytes plain
        while length == 0 and not self.ended:
            if not self.rest and self.fed.length > self.taken:
                slice_bytes = min(self.fed.length - self.taken, SLICE_BYTES)
                self.rest = self.fed.data[self.taken:self.taken + slice_bytes]
                self.take(slice_bytes)
            elif not self.rest and not self.more:
                break
            try:
                plain = self.inflater.decompress(self.rest, PIECE_BYTES)
            except zlib.error:
                raise CodecError("deflate data is corrupt") from None
            length = len(plain)
            self.rest = self.inflater.unconsumed_tail
            self.more = length == PIECE_BYTES
            self.ended = self.inflater.eof and not self.more
            memcpy(c_to, PyBytes_AS_STRING(plain), <size_t> length)
        return length

    cdef bytes encode(self, char *c_from, Py_ssize_t length):
        if 0 < length <= STORED_BYTES:
            return self._stored(c_from, length)
        if self.deflater is None:
            self.deflater = new_deflater(self.level)
        self._catch_up()
        packed = self.deflater.compress(PyMemoryView_FromMemory(c_from, length, PyBUF_READ))
        flushed = self.deflater.flush(zlib.Z_SYNC_FLUSH)
        return packed + flushed if packed else flushed

    cdef bytes _stored(self, const char *c_from, Py_ssize_t length):
        """A stored block, and the empty block that ends each flush."""
        cdef bytes block = PyBytes_FromStringAndSize(NULL, length + 10)
        cdef unsigned char *c_to = <unsigned char *> PyBytes_AS_STRING(block)
        c_to[0] = 0
        c_to[1] = <unsigned char> (length & 0xFF)
        c_to[2] = <unsigned char> (length >> 8)
        c_to[3] = <unsigned char> (~length & 0xFF)
        c_to[4] = <unsigned char> (~length >> 8 & 0xFF)
        memcpy(c_to + 5, c_from, <size_t> length)
        memcpy(c_to + 5 + length, b"\x00\x00\x00\xff\xff", 5)
        if self.unseen.length >= 2 * WINDOW_BYTES:
            inbuf_drop(&self.unseen, self.unseen.length - WINDOW_BYTES)
        if inbuf_append(&self.unseen, c_from, length) < 0:
            raise MemoryError
        return block

    cdef int _catch_up(self) except -1:
        """Feeds the deflater the data sent without it: both sides share one window.

        Its output is discarded: a flush ends on a byte boundary and leaves no state but the window.
        """
        cdef Py_ssize_t length = min(self.unseen.length, WINDOW_BYTES)
        if length:
            self.deflater.compress(PyMemoryView_FromMemory(self.unseen.data + self.unseen.length - length, length,
                                                           PyBUF_READ))
            self.deflater.flush(zlib.Z_SYNC_FLUSH)
            inbuf_free(&self.unseen)
        return 0

    cdef bint cut_short(self) noexcept:
        # A flushed stream ends with an empty stored block.
        return self.begun and not self.ended and memcmp(self.last, b"\x00\x00\xff\xff", 4) != 0


cdef object new_deflater(int level):
    """A raw stream from the library for this level; both have the same methods."""
    if isal_zlib is not None and level in ISAL_LEVELS:
        return isal_zlib.compressobj(ISAL_LEVELS[level], zlib.DEFLATED, -15)
    return zlib.compressobj(level, zlib.DEFLATED, -15)
