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
