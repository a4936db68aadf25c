# Frames of the Python client: received messages in columns, published commands.

from libc.stdint cimport int64_t


# ====================================================================== chunk
# Memory that grows while being filled, and is then lent to Arrow through the buffer protocol without a copy.

cdef class Chunk:
    cdef char *c_data           # owned; NULL while empty
    cdef Py_ssize_t length      # bytes in use
    cdef Py_ssize_t room        # bytes allocated
    cdef Py_ssize_t lent        # exported buffers; it must not grow while any exist

    cdef char *more(self, Py_ssize_t need) except NULL      # appends need bytes; returns their start


# ====================================================================== message
# A message for applications, created from a row of Inflow.columns().

cdef class Message:
    cdef readonly bytes body
    cdef readonly bytes id              # 16 characters
    cdef readonly int64_t timestamp_ns  # since 1970: publication
    cdef readonly int attempts
    cdef readonly object connection     # an Answerable: the connection that delivered it
    cdef readonly bint answered         # finished or requeued

    cdef bint _answer(self) except -1   # marks it answered; False if it already was


# ====================================================================== inflow
# The stream of one nsqd, cut into frames: messages become columns, all other frames small Python objects.
#
# The buffer protocol lends the free end of the receive area to socket.recv_into; fed() then takes the byte count.
# feed() copies bytes received in another way.

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


# ====================================================================== encode

# Commands that carry bodies, built from Python's bytes.
