# Decoder state of a chunked body.

from libc.stdint cimport int64_t


cdef enum State:
    SIZE            # the digits of a chunk's size
    BLANKS          # spaces after it
    EXTENSION
    SIZE_LF
    DATA
    DATA_CR
    DATA_LF
    NAME            # the first byte of a trailer's line, or the CR of the empty line
    NAME_REST
    CONTENT
    CONTENT_LF
    LAST_LF
    DONE


cdef class Chunks:
    cdef State state
    cdef int64_t left       # remaining bytes of this chunk
    cdef Py_ssize_t count   # bytes of the current chunk line, or of all trailers
    cdef int _step(self, unsigned char byte) except -1
    cdef int _step_size(self, unsigned char byte) except -1
    cdef int _step_trailer(self, unsigned char byte) except -1
