# The stream of one nsqd, cut into frames: messages become columns, all other frames small Python objects.
#
# The buffer protocol lends the free end of the receive area to socket.recv_into; fed() then takes the byte count.
# feed() copies bytes received in another way.

from libc.stdint cimport int64_t
from nsqc.client.chunk cimport Chunk

cdef class Inflow:
    cdef char *c_data           # owned: the receive area
    cdef Py_ssize_t room        # bytes allocated
    cdef Py_ssize_t begin, end  # of the received bytes not cut yet
    cdef Py_ssize_t lent
    cdef Py_ssize_t max_frame   # bytes after a frame's size field
    cdef int64_t tick_ns        # unit of the timestamps in columns()
    cdef Chunk bodies, offsets, times, attempts, ids
    cdef readonly Py_ssize_t rows       # messages collected
    cdef readonly int64_t oldest        # smallest timestamp among them, nanoseconds
    cdef readonly list replies          # (type, data) of responses and errors, in order; the reader clears it

    cdef int _fresh(self) except -1
    cdef int _make_room(self) except -1
    cdef int _message(self, const char *c_at, Py_ssize_t length) except -1
