# Growing buffers.

from libc.stdint cimport int64_t


cdef struct Buffer:
    char *c_data            # owned; NULL: none
    int64_t length, room    # bytes
    int64_t records         # that it holds, for a batch

cdef int buffer_room(Buffer *buffer, int64_t need) noexcept nogil   # room for `need` more bytes; -1: no memory
cdef void buffer_free(Buffer *buffer) noexcept nogil
