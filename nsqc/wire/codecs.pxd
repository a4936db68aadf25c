# The codecs of compressed connections, by their names in IDENTIFY; the daemon and the client negotiate these.
#
# A codec's library is loaded by the first connection that uses it. Snappy and logs share the CRC-32C.

from libc.stdint cimport uint32_t

from nsqc.wire.parser cimport InBuf


# ====================================================================== crc32c
# CRC-32C (Castagnoli). Snappy's chunks carry the masked checksum of the decoded bytes.

cdef uint32_t crc32c(const unsigned char *c_at, Py_ssize_t length) noexcept nogil
cdef uint32_t crc32c_by_tables(const unsigned char *c_at, Py_ssize_t length) noexcept nogil  # software version


# ====================================================================== codec
# Both directions of a compressed connection. Input is fed as it arrives and decoded in pieces of limited size: a
# decompression bomb is never in memory as a whole. Output is encoded one flush at a time.

cdef enum:
    PIECE_BYTES = 65536     # the most that one decode() returns


cdef class Codec:
    cdef readonly str name        # as in IDENTIFY
    cdef readonly bint ended        # the stream has signalled its end
    cdef InBuf fed                  # owned; input, of which the first `taken` bytes are decoded
    cdef Py_ssize_t taken

    cdef int feed(self, const char *c_from, Py_ssize_t length) except -1
    # Decodes to c_to, which has room for PIECE_BYTES; returns the byte count. 0: needs more input. Raises CodecError.
    cdef Py_ssize_t decode(self, char *c_to) except -1
    # Encodes and flushes: the peer can decode all of it without more data.
    cdef bytes encode(self, char *c_from, Py_ssize_t length)
    # Whether the input so far ends in the middle of a block.
    cdef bint cut_short(self) noexcept
    cdef void take(self, Py_ssize_t length) noexcept    # marks this many input bytes as decoded
