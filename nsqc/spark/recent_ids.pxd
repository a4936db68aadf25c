# The latest message ids, for recognising redeliveries. A new id replaces the oldest.

from libc.stdint cimport uint32_t, uint64_t

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
