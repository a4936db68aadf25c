"""The binary heap for message timeouts and delays."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc

cdef enum:
    FIRST_ROOM = 32
    KEPT_ROOM = 4096        # 64 KiB; smaller heaps are not shrunk, since they would grow again


cdef inline void put(Heap *heap, uint32_t slot, HeapItem item) noexcept nogil:
    heap.items[slot] = item
    item.delivery.slot = slot


cdef void sift_up(Heap *heap, uint32_t slot, HeapItem item) noexcept nogil:
    cdef uint32_t parent
    while slot:
        parent = (slot - 1) >> 1
        if heap.items[parent].deadline_ns <= item.deadline_ns:
            break
        put(heap, slot, heap.items[parent])
        slot = parent
    put(heap, slot, item)


cdef void sift_down(Heap *heap, uint32_t slot, HeapItem item) noexcept nogil:
    cdef uint32_t child
    while True:
        child = 2 * slot + 1
        if child >= heap.count:
            break
        if child + 1 < heap.count and heap.items[child + 1].deadline_ns < heap.items[child].deadline_ns:
            child += 1
        if heap.items[child].deadline_ns >= item.deadline_ns:
            break
        put(heap, slot, heap.items[child])
        slot = child
    put(heap, slot, item)


cdef void settle(Heap *heap, uint32_t slot, HeapItem item) noexcept nogil:
    if slot and heap.items[(slot - 1) >> 1].deadline_ns > item.deadline_ns:
        sift_up(heap, slot, item)
    else:
        sift_down(heap, slot, item)


cdef int resize(Heap *heap, uint32_t room) noexcept nogil:
    cdef HeapItem *c_items = <HeapItem *> realloc(heap.items, room * sizeof(HeapItem))
    if c_items is NULL:
        return -1
    heap.items = c_items
    heap.room = room
    return 0


cdef bint heap_reserve(Heap *heap) noexcept nogil:
    return heap.count < heap.room or resize(heap, max(FIRST_ROOM, 2 * heap.room)) == 0


cdef int heap_push(Heap *heap, Delivery *delivery) noexcept nogil:
    cdef HeapItem item
    if not heap_reserve(heap):
        return -1
    item.deadline_ns = delivery.deadline_ns
    item.delivery = delivery
    heap.count += 1
    sift_up(heap, heap.count - 1, item)
    return 0


cdef void heap_remove(Heap *heap, Delivery *delivery) noexcept nogil:
    cdef uint32_t slot = delivery.slot
    heap.count -= 1
    if slot < heap.count:
        settle(heap, slot, heap.items[heap.count])
    if heap.room > KEPT_ROOM and heap.count < heap.room // 8:
        resize(heap, heap.room // 4)


cdef void heap_moved(Heap *heap, Delivery *delivery) noexcept nogil:
    cdef HeapItem item
    item.deadline_ns = delivery.deadline_ns
    item.delivery = delivery
    settle(heap, delivery.slot, item)


cdef void heap_free(Heap *heap) noexcept nogil:
    free(heap.items)
    heap.items = NULL
    heap.count = heap.room = 0
