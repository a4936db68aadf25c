# Whole records as nsqd's HTTP API sends them, in memory, as columns.

from libc.stdint cimport int64_t, uint32_t

from nsqc.client.chunk cimport Chunk

cdef class Block:
    cdef const unsigned char[::1] data      # lent by its owner as long as this lives
    cdef uint32_t *ends             # owned: where each record ends
    cdef Py_ssize_t at              # where the next record begins
    cdef readonly Py_ssize_t end    # behind the last
    cdef int64_t row, rows          # the next record, and how many there are
    cdef readonly int64_t offset    # of the next record

    cdef int _walk(self, Py_ssize_t length) except -1
    cdef int64_t _fitting(self, int64_t max_rows, int64_t max_bytes) noexcept


cdef Chunk filled(Py_ssize_t length)
