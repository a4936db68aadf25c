# Arrow columns: bodies to publish, records of disk queues, ids seen recently.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqc.store.disk.segment cimport Window


# ====================================================================== bodies
# Message bodies in an Arrow column of binary or text, and the commands that publish them.
#
# Row r of the column is c_data[offsets[first + r] .. offsets[first + r + 1]]; it is null if the bit first + r of
# the validity bitmap, counted from the lowest, is 0. A slice has first > 0 and shares the buffers of the whole column.

cdef class Bodies:
    cdef const unsigned char[::1] validity, data    # validity is empty if no row is null
    cdef const int[::1] offsets                     # only one of the two is used
    cdef const long long[::1] wide_offsets
    cdef bint wide
    cdef Py_ssize_t first           # of the column in its buffers
    cdef readonly Py_ssize_t rows

    cdef int64_t begin(self, Py_ssize_t row) noexcept
    cdef int64_t size(self, Py_ssize_t row) noexcept
    cdef bint is_null(self, Py_ssize_t row) noexcept
    cdef char *put(self, char *c_to, Py_ssize_t row) noexcept


# ====================================================================== records
# The records of one data file of a disk queue as columns, by the rules of nsqc.store.disk.segment.

cdef class Records:
    cdef Window window          # freed with this object
    cdef int fd                 # owned; -1 when closed
    cdef int64_t at             # offset of the search for the next record
    cdef int64_t max_record     # bytes, head included
    cdef readonly int64_t damaged       # bytes so far that belong to no record
    cdef readonly int64_t damage_at     # offset of the first of them; -1: none
    cdef readonly str path

    cdef int _count_damage(self, int64_t from_, int64_t to) except -1


# ====================================================================== recent ids
# The latest message ids, for recognising redeliveries. A new id replaces the oldest.

cdef struct Key:
    uint64_t high, low      # the 16 bytes of the id
    uint32_t node           # number of the nsqd: ids are unique only within one nsqd


cdef class RecentIds:
    cdef Key *c_ring            # owned: keys in order of arrival
    cdef uint32_t *c_table      # owned: index in the ring + 1 by hash, 0: free; linear probing
    cdef uint32_t capacity      # of the ring
    cdef uint32_t mask          # of the table: at least twice the capacity, minus 1
    cdef uint32_t next          # index of the next key
    cdef readonly uint32_t count

    cdef uint32_t find(self, Key *key) noexcept     # its slot in the table, or the free slot for it
    cdef void forget(self, uint32_t place) noexcept
    cdef bint add(self, Key *key) noexcept
