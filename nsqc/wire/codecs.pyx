"""The codecs of compressed connections, by their names in IDENTIFY; the daemon and the client negotiate these.

A codec's library is loaded by the first connection that uses it. Snappy and logs share the CRC-32C.
"""

from __future__ import annotations

cimport cython
import contextlib
import zlib
from collections.abc import Callable
from typing import NamedTuple
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove

from nsqc.wire.parser cimport inbuf_append, inbuf_drop, inbuf_free


# ====================================================================== crc32c
# CRC-32C: SSE 4.2 and PCLMUL instructions if the processor has them, otherwise tables.

cdef extern from "<endian.h>" nogil:
    uint32_t le32toh(uint32_t)

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define NSQC_HAS_CRC32C (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
    #ifdef __clang__  // its own name for the instruction is unknown to older gcc
    #define NSQC_CRC32C_TARGET "sse4.2,crc32,pclmul"
    #else
    #define NSQC_CRC32C_TARGET "sse4.2,pclmul"
    #endif
    enum { NSQC_WORDS = 64, NSQC_LEAST = 160 };     // longest lane; fewest bytes that are worth lanes
    static uint32_t nsqc_shifts[2 * NSQC_WORDS + 1];

    static void nsqc_fill_shifts(void) {
        uint32_t value = 0x80000000u;   // x^0: bits are reflected
        int words, power = 0;
        for (words = 1; words <= 2 * NSQC_WORDS; words++) {
            for (; power < 64 * words - 33; power++)
                value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0);
            nsqc_shifts[words] = value;
        }
    }

    // Extends a checksum by this many words of zeros, once the instruction has reduced it.
    __attribute__((target(NSQC_CRC32C_TARGET)))
    static inline uint64_t nsqc_shifted(uint64_t crc, Py_ssize_t words) {
        return (uint64_t) _mm_cvtsi128_si64(_mm_clmulepi64_si128(
            _mm_cvtsi32_si128((int) crc), _mm_cvtsi32_si128((int) nsqc_shifts[words]), 0));
    }

    __attribute__((target(NSQC_CRC32C_TARGET)))
    static inline uint64_t nsqc_crc32c_word(uint64_t crc, const unsigned char *at) {
        uint64_t word;
        memcpy(&word, at, 8);
        return __builtin_ia32_crc32di(crc, word);
    }

    // The instruction has a latency of three cycles and a throughput of one: three lanes take as long as one.
    __attribute__((target(NSQC_CRC32C_TARGET)))
    static uint32_t nsqc_crc32c(const unsigned char *at, Py_ssize_t length) {
        uint64_t crc = 0xFFFFFFFFu, second, third, word;
        uint32_t four;
        uint16_t two;
        const unsigned char *last;
        Py_ssize_t words, lane;
        while (length >= NSQC_LEAST) {
            words = length / 24 < NSQC_WORDS ? length / 24 : NSQC_WORDS;
            lane = 8 * words;
            second = third = 0;
            for (last = at + lane - 8; at < last; at += 8) {
                crc = nsqc_crc32c_word(crc, at);
                second = nsqc_crc32c_word(second, at + lane);
                third = nsqc_crc32c_word(third, at + 2 * lane);
            }
            crc = nsqc_crc32c_word(crc, at);
            second = nsqc_crc32c_word(second, at + lane);
            memcpy(&word, at + 2 * lane, 8);
            crc = __builtin_ia32_crc32di(third, word ^ nsqc_shifted(crc, 2 * words) ^ nsqc_shifted(second, words));
            at += 8 + 2 * lane;
            length -= 3 * lane;
        }
        for (; length >= 8; at += 8, length -= 8)
            crc = nsqc_crc32c_word(crc, at);
        if (length & 4) {
            memcpy(&four, at, 4);
            crc = __builtin_ia32_crc32si((uint32_t) crc, four);
            at += 4;
        }
        if (length & 2) {
            memcpy(&two, at, 2);
            crc = __builtin_ia32_crc32hi((uint32_t) crc, two);
            at += 2;
        }
        if (length & 1)
            crc = __builtin_ia32_crc32qi((uint32_t) crc, *at);
        return ~(uint32_t) crc;
    }
    #else
    #define NSQC_HAS_CRC32C 0
    static void nsqc_fill_shifts(void) {}
    static uint32_t nsqc_crc32c(const unsigned char *at, Py_ssize_t length) { (void) at; (void) length; return 0; }
    #endif
    """
    bint NSQC_HAS_CRC32C
    void nsqc_fill_shifts()
    uint32_t nsqc_crc32c(const unsigned char *c_at, Py_ssize_t length) nogil

cdef enum:
    POLYNOMIAL = 0x82F63B78     # reflected
    MASK_DELTA = 0xA282EAD8

cdef uint32_t[8][256] tables
cdef bint has_instruction = NSQC_HAS_CRC32C


cdef void fill_tables() noexcept nogil:
    cdef uint32_t value
    cdef int byte, _bit, table
    for byte in range(256):
        value = <uint32_t> byte
        for _bit in range(8):
            value = (value >> 1) ^ (<uint32_t> POLYNOMIAL if value & 1 else 0)
        tables[0][byte] = value
    for byte in range(256):
        value = tables[0][byte]
        for table in range(1, 8):
            value = (value >> 8) ^ tables[0][value & 0xFF]
            tables[table][byte] = value


cdef uint32_t crc32c(const unsigned char *c_at, Py_ssize_t length) noexcept nogil:
    return nsqc_crc32c(c_at, length) if has_instruction else crc32c_by_tables(c_at, length)


cdef uint32_t crc32c_by_tables(const unsigned char *c_at, Py_ssize_t length) noexcept nogil:
    cdef uint32_t crc = ~<uint32_t> 0
    cdef uint32_t low, high
    while length >= 8:
        memcpy(&low, c_at, 4)
        memcpy(&high, c_at + 4, 4)
        low = le32toh(low) ^ crc
        high = le32toh(high)
        crc = (tables[7][low & 0xFF] ^ tables[6][(low >> 8) & 0xFF] ^ tables[5][(low >> 16) & 0xFF]
               ^ tables[4][low >> 24] ^ tables[3][high & 0xFF] ^ tables[2][(high >> 8) & 0xFF]
               ^ tables[1][(high >> 16) & 0xFF] ^ tables[0][high >> 24])
        c_at += 8
        length -= 8
    while length > 0:
        crc = (crc >> 8) ^ tables[0][(crc ^ c_at[0]) & 0xFF]
        c_at += 1
        length -= 1
    return ~crc


cdef uint32_t crc32c_masked(const unsigned char *c_at, Py_ssize_t length) noexcept nogil:
    """Rotated, plus a constant: a checksum over data that contains checksums would be weak otherwise."""
    cdef uint32_t crc = crc32c(c_at, length)
    return <uint32_t> (((crc >> 15) | (crc << 17)) + <uint64_t> MASK_DELTA)


fill_tables()
nsqc_fill_shifts()


# ====================================================================== codec
# Shared by all codecs: undecoded input, and methods for Python.

class CodecError(ValueError):
    """The peer's stream cannot be decoded; the text is sent to the peer."""


cdef class Codec:
    """Base of the codecs; subclasses implement decode, encode and cut_short."""

    def __dealloc__(self):
        inbuf_free(&self.fed)

    cdef int feed(self, const char *c_from, Py_ssize_t length) except -1:
        inbuf_drop(&self.fed, self.taken)
        self.taken = 0
        if inbuf_append(&self.fed, c_from, length) < 0:
            raise MemoryError
        return 0

    cdef void take(self, Py_ssize_t length) noexcept:
        self.taken += length
        if self.taken == self.fed.length:
            inbuf_free(&self.fed)
            self.taken = 0

    cdef Py_ssize_t decode(self, char *c_to) except -1:
        raise NotImplementedError

    cdef bytes encode(self, char *c_from, Py_ssize_t length):
        raise NotImplementedError

    cdef bint cut_short(self) noexcept:
        return False

    # ------------------------------------------------------------------ for Python

    def put(self, bytes data not None) -> None:
        """Feeds input."""
        self.feed(data, len(data))

    def get(self) -> bytes:
        """The next decoded bytes, at most 64 KiB; empty if more input is needed. Raises CodecError."""
        piece = bytearray(PIECE_BYTES)
        return bytes(piece[:self.decode(piece)])

    def pack(self, bytes data not None) -> bytes:
        """Encodes and flushes."""
        return self.encode(data, len(data))

    @property
    def waiting(self) -> int:
        """Input bytes not decoded yet."""
        return self.fed.length - self.taken

    @property
    def truncated(self) -> bool:
        """Whether the input so far is cut off."""
        return self.cut_short()


# ====================================================================== snappy
# Snappy in its framing format: chunks of type 1, length 3 (little-endian), data. cramjam handles blocks; chunks and
# checksums are handled here.
#
#   ff      stream identifier: begins the stream, may be repeated
#   00      masked crc32c 4, a compressed block of up to 64 KiB when decoded
#   01      masked crc32c 4, up to 64 KiB plain bytes
#   80-fe   ignored, of any length
#   02-7f   refused

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
# Loaded by the first connection that uses it.
compress_raw = decompress_raw = FAILED = None


@cython.final
cdef class Snappy(Codec):
    """Both directions of a snappy connection."""

    cdef bint greeted           # the stream identifier was received
    cdef bint introduced        # ours was sent
    cdef Py_ssize_t skipping    # bytes left of a chunk that is ignored

    def __init__(self):
        global compress_raw, decompress_raw, FAILED
        import cramjam

        compress_raw = cramjam.snappy.compress_raw
        decompress_raw = cramjam.snappy.decompress_raw
        FAILED = cramjam.DecompressionError
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


# ====================================================================== deflate
# Raw deflate without header and checksum, as in nsqd. Libraries do the work; this limits their output per call, and
# stores small flushes uncompressed.
#
# Up to level 6, ISA-L compresses: several times faster than zlib, whose output is about 10% smaller. Clients that ask
# for levels 7 to 9 want that 10%, and get zlib. zlib decompresses at any level.

# Loaded by the first connection that uses it; None: not available for this machine, see pyproject.toml.
isal_zlib = None

cdef enum:
    # Flushes up to this size are stored, not compressed. Netty inflates one read to at most twice the bytes read, and a
    # client whose pipeline does not assemble frames, such as JavaNSQClient, mistakes that for a whole frame. The first
    # read is 1024 bytes, ten of which a stored flush needs. And a packet is a packet, compressed or not.
    STORED_BYTES = 1014
    SLICE_BYTES = 16384     # of input per call: zlib copies the input it does not consume
    WINDOW_BYTES = 32768    # farthest back-reference of a stream

# ISA-L's levels by deflate's; for others, zlib is used.
cdef dict ISAL_LEVELS = {1: 1, 2: 1, 3: 2, 4: 2, 5: 2, 6: 3}


@cython.final
cdef class Deflate(Codec):
    """level is 1 to 9."""

    cdef object inflater                # of zlib
    cdef object deflater                # of zlib or ISA-L, 100 to 200 KB; None until a flush is compressed
    cdef int level
    cdef InBuf unseen                   # owned; the tail of the data stored since the deflater was last used
    cdef object rest                    # input not yet consumed by the inflater
    cdef bint more                      # the inflater may return more without new input
    cdef char[4] last                   # last bytes of the input
    cdef bint begun

    def __init__(self, int level):
        global isal_zlib
        with contextlib.suppress(ImportError):
            from isal import isal_zlib
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


# ====================================================================== codecs
# The codecs of compressed connections, by their names in IDENTIFY; the daemon and the client negotiate these.
#
# A codec's library is loaded by the first connection that uses it.

LIBRARIES: tuple[str, ...] = ("isal", "cramjam")     # loaded late, see nsqc.process.machine


class CodecKind(NamedTuple):
    """How a codec is made, and its levels: the highest, and the one of clients that name none; 0: it has no levels."""

    make: Callable[..., Codec]
    levels: int = 0
    level: int = 0


CODECS: dict[str, CodecKind] = {"deflate": CodecKind(Deflate, 9, 6), "snappy": CodecKind(Snappy)}


def new_codec(name: str, level: int) -> Codec:
    """A codec for one connection. level: for codecs that have levels."""
    kind = CODECS[name]
    return kind.make(level) if kind.levels else kind.make()
