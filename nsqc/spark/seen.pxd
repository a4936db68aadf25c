# Message ids that were seen lately, so that a redelivery is noticed. The oldest is forgotten for the newest.

from libc.stdint cimport uint32_t, uint64_t

cdef struct Key:
    uint64_t high, low      # the 16 bytes of the id
    uint32_t node           # which nsqd: ids are unique within one only


cdef class Seen:
    cdef Key *c_ring            # owned: keys in the order they came
    cdef uint32_t *c_table      # owned: place in the ring + 1 by hash, 0: free; linear probing
    cdef uint32_t capacity      # of the ring
    cdef uint32_t mask          # of the table: at least twice the capacity, minus 1
    cdef uint32_t next          # place that is taken next
    cdef readonly uint32_t count

    cdef uint32_t find(self, Key *key) noexcept     # place in the table: taken by this key, or free
    cdef void forget(self, uint32_t place) noexcept
    cdef bint add(self, Key *key) noexcept
