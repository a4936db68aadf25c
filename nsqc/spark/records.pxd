# The records of one data file of a disk queue as columns, by the rules of nsqc.store.disk.segment.

from libc.stdint cimport int64_t
from nsqc.store.disk.segment cimport Window

cdef class Records:
    cdef Window window          # freed with this object
    cdef int fd                 # owned; -1 when closed
    cdef int64_t at             # offset of the search for the next record
    cdef int64_t max_record     # bytes, head included
    cdef readonly int64_t damaged       # bytes so far that belong to no record
    cdef readonly int64_t damage_at     # offset of the first of them; -1: none
    cdef readonly str path

    cdef int _count_damage(self, int64_t from_, int64_t to) except -1
