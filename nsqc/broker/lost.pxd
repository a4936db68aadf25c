# Consumers whose connections are lost while messages are in flight to them, for requeue_on_disconnect: which deliveries
# are theirs is found by a walk over the heap of time-outs, in slices. The heap changes between slices, so the walk is
# repeated until all of them are found.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.heap cimport Heap

cdef enum:
    RETURNED = -1           # owner of a delivery whose consumer is lost: it is due at once


cdef struct Lost:
    int64_t *owners         # ids of consumers, ascending; owned
    uint32_t count
    uint32_t room
    uint32_t at             # items of the heap before this one are still to be looked at
    int64_t left            # deliveries that were not found yet
    int64_t idle            # items looked at since the last of them was found


# A consumer with messages in flight is lost. Without memory for it they wait for their time-out.
cdef void lost_add(Lost *lost, int64_t owner, int64_t in_flight) noexcept nogil
cdef bint lost_has(const Lost *lost, int64_t owner) noexcept nogil
# Looks at some items; those of lost consumers are RETURNED and become due. Whether there are more to look at.
cdef bint lost_step(Lost *lost, Heap *heap, int steps) noexcept nogil
cdef void lost_clear(Lost *lost) noexcept nogil
cdef void lost_free(Lost *lost) noexcept nogil
