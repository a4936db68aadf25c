# A compressed connection's two directions. Input is fed as it comes and decoded in bounded pieces, so that what a peer
# packs into few bytes never lies unpacked in memory; output is encoded a flush at a time.

from nsqc.wire.inbuf cimport InBuf

cdef enum:
    PIECE_BYTES = 65536     # most that one decode() gives


cdef class Codec:
    cdef readonly object name       # deflate or snappy
    cdef readonly bint ended        # the stream itself says that it is over
    cdef InBuf fed                  # owned; input, of which the first taken bytes are done with
    cdef Py_ssize_t taken

    cdef int feed(self, const char *c_from, Py_ssize_t length) except -1
    # Plain bytes to c_to, which has room for PIECE_BYTES; how many. 0: more input is needed. Raises CodecError.
    cdef Py_ssize_t decode(self, char *c_to) except -1
    # All of the bytes, encoded and flushed, so that the peer can decode them without waiting for more.
    cdef bytes encode(self, char *c_from, Py_ssize_t length)
    # Whether the input breaks off where the peer cannot have meant to end it.
    cdef bint cut_short(self) noexcept
    cdef void take(self, Py_ssize_t length) noexcept    # of what was fed
