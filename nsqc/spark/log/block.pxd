# Whole records as nsqd's HTTP API sends them, in memory, as columns.

from libc.stdint cimport int64_t

from nsqc.client.chunk cimport Chunk

cdef class Block:
    cdef const unsigned char[::1] data      # lent by its owner as long as this lives
    cdef Py_ssize_t at              # where the next record begins
    cdef readonly Py_ssize_t end    # behind the last
    cdef readonly int64_t offset    # of the next record

    cdef int measure(self, Py_ssize_t max_rows, Py_ssize_t max_bytes, Py_ssize_t *rows, Py_ssize_t *length) except -1


cdef Chunk filled(Py_ssize_t length)
