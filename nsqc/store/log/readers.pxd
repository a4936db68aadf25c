# Readers that wait for future records.

from libc.stdint cimport int64_t


cdef class Readers:
    # Of one log; created for the first waiting reader.
    cdef object loop                # None: all are called at once
    cdef dict waiting               # WaitsForRecords in the order they came: None
    cdef list woken                 # still to be called

    cdef WaitsForRecords add(self, int64_t offset, call)
    cdef void wake(self, int64_t end, bint closed) noexcept     # those before an offset; closed: all, now


cdef class WaitsForRecords:
    cdef Readers readers
    cdef int64_t offset
    cdef object call
