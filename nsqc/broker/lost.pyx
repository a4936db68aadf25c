"""Deliveries to lost connections. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from nsqc.store.delivery cimport Delivery
from nsqc.store.heap cimport Heap, heap_moved

cdef enum:
    FIRST_ROOM = 8
    PASSES = 4


cdef uint32_t position(const Lost *lost, int64_t owner) noexcept nogil:
    """The index of the first id at or above owner."""
    cdef uint32_t low = 0, high = lost.count, middle
    while low < high:
        middle = (low + high) >> 1
        if lost.owners[middle] < owner:
            low = middle + 1
        else:
            high = middle
    return low


cdef void lost_add(Lost *lost, int64_t owner, int64_t in_flight) noexcept nogil:
    cdef uint32_t at, room
    cdef int64_t *c_owners
    if in_flight <= 0:
        return
    if lost.count == lost.room:
        room = max(FIRST_ROOM, 2 * lost.room)
        c_owners = <int64_t *> realloc(lost.owners, room * sizeof(int64_t))
        if c_owners is NULL:
            return
        lost.owners = c_owners
        lost.room = room
    at = position(lost, owner)
    memmove(&lost.owners[at + 1], &lost.owners[at], (lost.count - at) * sizeof(int64_t))
    lost.owners[at] = owner
    lost.count += 1
    lost.left += in_flight


cdef bint lost_has(const Lost *lost, int64_t owner) noexcept nogil:
    cdef uint32_t at = position(lost, owner)
    return at < lost.count and lost.owners[at] == owner


cdef bint lost_step(Lost *lost, Heap *heap, int steps) noexcept nogil:
    cdef Delivery *delivery
    while lost.left > 0 and heap.count and steps:
        if lost.at == 0 or lost.at > heap.count:
            lost.at = heap.count
        lost.at -= 1
        lost.idle += 1
        steps -= 1
        delivery = heap.items[lost.at].delivery
        if lost_has(lost, delivery.owner):
            delivery.delivered_ns = delivery.owner      # it cannot be touched any more
            delivery.owner = RETURNED
            delivery.deadline_ns = 0
            heap_moved(heap, delivery)
            lost.left -= 1
            lost.idle = 0
            lost.at += 1        # it has moved to the front, and another one to its place
    # Between slices, items may move past the walk, so it is repeated; but not forever, as deliveries may be gone.
    if lost.left > 0 and lost.idle < PASSES * <int64_t> heap.count:
        return True
    lost_clear(lost)
    return False


cdef void lost_clear(Lost *lost) noexcept nogil:
    lost.count = lost.at = 0
    lost.left = lost.idle = 0


cdef void lost_free(Lost *lost) noexcept nogil:
    lost_clear(lost)
    free(lost.owners)
    lost.owners = NULL
    lost.room = 0
