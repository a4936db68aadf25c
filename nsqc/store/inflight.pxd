# Maps message ids to deliveries: open addressing with linear probing. Does not own the deliveries.
#
# An id can occur more than once: a queue that lost its positions in a crash may hold a message twice, and each copy
# has its own delivery.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from nsqc.store.delivery cimport Delivery

cdef struct IdSlot:
    uint64_t hash
    Delivery *delivery      # NULL: free

cdef struct InFlightMap:
    IdSlot *slots           # owned; NULL while empty
    uint32_t count
    uint32_t mask           # number of slots - 1; slots are a power of two

cdef bint inflight_reserve(InFlightMap *map) noexcept nogil      # reserves space for one more; False: no memory
cdef int inflight_add(InFlightMap *map, Delivery *delivery) noexcept nogil       # 0; -1: no memory
# The delivery with this id that belongs to owner, otherwise any with this id, otherwise NULL.
cdef Delivery *inflight_find(InFlightMap *map, const char *c_id, int64_t owner) noexcept nogil
# For many ids in one buffer, `stride` bytes apart: prefetches the cache lines for the next ones. c_id: the current id,
# already validated; c_end: end of the buffer, whose other bytes are untrusted.
cdef void inflight_expect(InFlightMap *map, const char *c_id, const char *c_end, Py_ssize_t stride) noexcept nogil
cdef void inflight_remove(InFlightMap *map, Delivery *delivery) noexcept nogil
cdef void inflight_free(InFlightMap *map) noexcept nogil
