# The two directions of a compressed connection. Input is fed as it comes and decoded in pieces of limited size:
# whatever a peer has packed into a few bytes is never in memory as a whole. Output is encoded one flush at a time.

from nsqc.wire.inbuf cimport InBuf

cdef enum:
    PIECE_BYTES = 65536     # most that one decode() returns


cdef class Codec:
    cdef readonly object name       # as in IDENTIFY
    cdef readonly bint ended        # the stream says that it has ended
    cdef InBuf fed                  # owned; input, of which the first taken bytes are decoded
    cdef Py_ssize_t taken

    cdef int feed(self, const char *c_from, Py_ssize_t length) except -1
    # Decodes to c_to, which has room for PIECE_BYTES; how many bytes. 0: more input is needed. Raises CodecError.
    cdef Py_ssize_t decode(self, char *c_to) except -1
    # Encodes and flushes: the peer can decode all of it without waiting for more.
    cdef bytes encode(self, char *c_from, Py_ssize_t length)
    # Whether the input so far ends where no peer would end it.
    cdef bint cut_short(self) noexcept
    cdef void take(self, Py_ssize_t length) noexcept    # that many bytes of the input are decoded
