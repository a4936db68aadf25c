# Consumers whose connections are lost with messages in flight, for requeue_on_disconnect. A walk over the heap of
# timeouts finds their deliveries, in slices. The heap changes between slices, so the walk is repeated until all of
# them are found.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.heap cimport Heap

cdef enum:
    RETURNED = -1           # owner of a delivery whose consumer is lost: due at once


cdef struct Lost:
    int64_t *owners         # ids of consumers, ascending; owned
    uint32_t count
    uint32_t room
    uint32_t at             # earlier items of the heap are still to be checked
    int64_t left            # deliveries not found yet
    int64_t idle            # items checked since the last one was found


# A consumer with messages in flight is lost. Without memory for it they wait for their timeout.
cdef void lost_add(Lost *lost, int64_t owner, int64_t in_flight) noexcept nogil
cdef bint lost_has(const Lost *lost, int64_t owner) noexcept nogil
# Checks some items; those of lost consumers are RETURNED and become due. Returns whether there are more.
cdef bint lost_step(Lost *lost, Heap *heap, int steps) noexcept nogil
cdef void lost_clear(Lost *lost) noexcept nogil
cdef void lost_free(Lost *lost) noexcept nogil
