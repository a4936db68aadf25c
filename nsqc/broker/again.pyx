"""Messages that wait for redelivery and may expire meanwhile. See the .pxd."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from nsqc.store.delivery cimport delivery_free
from nsqc.store.heap cimport heap_push, heap_remove, heap_reserve

cdef enum:
    FIRST_ROOM = 32


cdef bint again_reserve(Again *again) noexcept nogil:
    return heap_reserve(&again.heap) and (again.end - again.first < again.room or renew(again))


cdef bint renew(Again *again) noexcept nogil:
    """Enlarges the ring of slots, or only removes the empty ones."""
    cdef int64_t room = FIRST_ROOM, at, end = 0
    cdef AgainSlot *slots
    cdef AgainSlot *slot
    while room < 2 * <int64_t> again.heap.count:
        room *= 2
    slots = <AgainSlot *> malloc(<size_t> room * sizeof(AgainSlot))
    if slots is NULL:
        return False
    for at in range(again.first, again.end):
        slot = &again.slots[at & (again.room - 1)]
        if slot.delivery is not NULL:
            slots[end] = slot[0]
            slot.delivery.delivered_ns = end
            end += 1
    free(again.slots)
    again.slots = slots
    again.room = room
    again.first = 0
    again.end = end
    return True


cdef void again_add(Again *again, Delivery *delivery, int64_t after) noexcept nogil:
    cdef AgainSlot *slot = &again.slots[again.end & (again.room - 1)]
    slot.delivery = delivery
    slot.after = after
    slot.number = again.came
    again.came += 1
    delivery.owner = 0
    delivery.delivered_ns = again.end
    delivery.deadline_ns = delivery.message.timestamp_ns
    again.end += 1
    heap_push(&again.heap, delivery)


cdef AgainSlot *again_first(Again *again) noexcept nogil:
    if again.heap.count == 0:
        return NULL
    while again.slots[again.first & (again.room - 1)].delivery is NULL:
        again.first += 1
    return &again.slots[again.first & (again.room - 1)]


cdef void again_remove(Again *again, Delivery *delivery) noexcept nogil:
    again.slots[delivery.delivered_ns & (again.room - 1)].delivery = NULL
    heap_remove(&again.heap, delivery)
    if again.heap.count == 0:
        again.first = again.end = 0
        if again.room > FIRST_ROOM:
            again_forget(again)


cdef void again_drop_logged(Again *again) noexcept:
    cdef Delivery *delivery
    cdef int64_t at, end = again.end
    for at in range(again.first, end):
        if again.heap.count == 0:
            return
        delivery = again.slots[at & (again.room - 1)].delivery
        if delivery is not NULL and delivery.offset >= 0:
            again_remove(again, delivery)
            delivery_free(delivery)


cdef void again_forget(Again *again) noexcept nogil:
    free(again.slots)
    again.slots = NULL
    again.room = again.first = again.end = 0
