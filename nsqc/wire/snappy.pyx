"""Snappy in its framing format. cramjam handles blocks; chunks and checksums are handled here."""

cimport cython
from libc.stdint cimport uint32_t
from libc.string cimport memcmp, memcpy
from cpython.buffer cimport PyBUF_READ, PyObject_GetBuffer, PyBUF_SIMPLE, PyBuffer_Release
from cpython.memoryview cimport PyMemoryView_FromMemory

from nsqc.wire.codec cimport PIECE_BYTES
from nsqc.wire.crc32c cimport crc32c_masked

import cramjam

from nsqc.wire.codec import CodecError

cdef enum:
    HEAD_BYTES = 4
    CRC_BYTES = 4
    COMPRESSED = 0x00
    PLAIN = 0x01
    FIRST_SKIPPABLE = 0x80
    IDENTIFIER = 0xFF
    # The largest compressor output for a full block: 32 + n + n / 6.
    MAX_BLOCK_BYTES = 76490

cdef bytes IDENTIFIER_CHUNK = b"\xff\x06\x00\x00sNaPpY"
compress_raw = cramjam.snappy.compress_raw
decompress_raw = cramjam.snappy.decompress_raw
FAILED = cramjam.DecompressionError


@cython.final
cdef class Snappy(Codec):
    """Both directions of a snappy connection."""

    def __init__(self):
        self.name = "snappy"

    cdef Py_ssize_t decode(self, char *c_to) except -1:
        """Decodes as many complete chunks as fit."""
        cdef Py_ssize_t filled = 0
        cdef Py_ssize_t have, length, plain
        cdef const unsigned char *c_at
        while True:
            have = self.fed.length - self.taken
            if self.skipping:
                length = min(have, self.skipping)
                self.skipping -= length
                self.take(length)
                have -= length
            if have < HEAD_BYTES:
                return filled
            c_at = <const unsigned char *> self.fed.data + self.taken
            length = c_at[1] | c_at[2] << 8 | c_at[3] << 16
            if self.greeted and FIRST_SKIPPABLE <= c_at[0] < IDENTIFIER:
                self.take(HEAD_BYTES)
                self.skipping = length
                continue
            try:
                check_head(self.greeted, c_at[0], length)
                if have < HEAD_BYTES + length:
                    return filled
                plain = self._chunk(c_at[0], length, c_to + filled, PIECE_BYTES - filled)
            except CodecError:
                if filled:
                    return filled       # the next call raises it again
                raise
            if plain < 0:
                return filled
            filled += plain
            self.take(HEAD_BYTES + length)

    cdef Py_ssize_t _chunk(self, int kind, Py_ssize_t length, char *c_to, Py_ssize_t room) except -2:
        """Decodes a complete chunk; returns the byte count, or -1 if the data does not fit."""
        cdef unsigned char *c_data = <unsigned char *> self.fed.data + self.taken + HEAD_BYTES
        cdef Py_ssize_t plain
        cdef Py_buffer view
        if kind == IDENTIFIER:
            if memcmp(c_data, <const char *> IDENTIFIER_CHUNK + HEAD_BYTES, 6) != 0:
                raise CodecError("snappy stream identifier is wrong")
            self.greeted = True
            return 0
        c_data += CRC_BYTES
        length -= CRC_BYTES
        plain = length if kind == PLAIN else plain_length(c_data, length)
        if plain > room:
            return -1
        if kind == PLAIN:
            memcpy(c_to, c_data, <size_t> length)
        else:
            try:
                unpacked = decompress_raw(PyMemoryView_FromMemory(<char *> c_data, length, PyBUF_READ))
            except FAILED:
                raise CodecError("snappy block is corrupt") from None
            PyObject_GetBuffer(unpacked, &view, PyBUF_SIMPLE)
            memcpy(c_to, view.buf, <size_t> min(plain, view.len))
            PyBuffer_Release(&view)
        if crc32c_masked(<unsigned char *> c_to, plain) != little(c_data - CRC_BYTES):
            raise CodecError("snappy checksum is wrong")
        return plain

    cdef bytes encode(self, char *c_from, Py_ssize_t length):
        cdef list parts = []
        cdef Py_ssize_t size
        if not self.introduced:
            self.introduced = True
            parts.append(IDENTIFIER_CHUNK)
        while length > 0:
            size = min(length, PIECE_BYTES)
            add_block(parts, c_from, size)
            c_from += size
            length -= size
        return b"".join(parts)

    cdef bint cut_short(self) noexcept:
        return self.skipping > 0 or self.fed.length > self.taken


cdef int check_head(bint greeted, int kind, Py_ssize_t length) except -1:
    """Refuses a chunk by its head alone, without buffering it."""
    if kind == IDENTIFIER:
        if length != 6:
            raise CodecError("snappy stream identifier is wrong")
    elif not greeted:
        raise CodecError("snappy stream does not begin with its identifier")
    elif kind == COMPRESSED or kind == PLAIN:
        if length <= CRC_BYTES or length - CRC_BYTES > (PIECE_BYTES if kind == PLAIN else MAX_BLOCK_BYTES):
            raise CodecError("snappy chunk length %d is invalid" % length)
    else:
        raise CodecError("snappy chunk type %d is unknown" % kind)
    return 0


cdef Py_ssize_t plain_length(const unsigned char *c_at, Py_ssize_t length) except -1:
    """The decoded length declared by a block, checked before decoding; no compressor makes blocks of 0 bytes."""
    cdef Py_ssize_t value = 0
    cdef int shift = 0
    cdef Py_ssize_t at
    for at in range(min(length, 3)):
        value |= <Py_ssize_t> (c_at[at] & 0x7F) << shift
        if c_at[at] < 0x80:
            if 0 < value <= PIECE_BYTES:
                return value
            break
        shift += 7
    raise CodecError("snappy block length is invalid")


cdef uint32_t little(const unsigned char *c_at) noexcept:
    return c_at[0] | <uint32_t> c_at[1] << 8 | <uint32_t> c_at[2] << 16 | <uint32_t> c_at[3] << 24


cdef int add_block(list parts, char *c_from, Py_ssize_t size) except -1:
    """Adds a chunk of up to 64 KiB, compressed if that saves an eighth."""
    cdef uint32_t crc = crc32c_masked(<unsigned char *> c_from, size)
    cdef unsigned char head[8]
    cdef Py_ssize_t length
    cdef object data = compress_raw(PyMemoryView_FromMemory(c_from, size, PyBUF_READ))
    head[0] = COMPRESSED
    if len(data) >= size - size // 8:
        head[0] = PLAIN
        data = c_from[:size]
    length = CRC_BYTES + len(data)
    head[1], head[2], head[3] = length & 0xFF, length >> 8 & 0xFF, length >> 16
    head[4], head[5], head[6], head[7] = crc & 0xFF, crc >> 8 & 0xFF, crc >> 16 & 0xFF, crc >> 24
    parts.append((<char *> head)[:8])
    parts.append(data)
    return 0
