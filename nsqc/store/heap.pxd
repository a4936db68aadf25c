# A binary heap of deliveries by deadline. Each delivery stores its slot, so removing one from the middle is cheap. The
# heap does not own the deliveries.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.delivery cimport Delivery

cdef struct HeapItem:
    int64_t deadline_ns     # copy of the delivery's: comparisons touch only this array
    Delivery *delivery

cdef struct Heap:
    HeapItem *items         # owned; NULL while empty
    uint32_t count
    uint32_t room

cdef bint heap_reserve(Heap *heap) noexcept nogil       # reserves space for one more; False: no memory
cdef int heap_push(Heap *heap, Delivery *delivery) noexcept nogil           # 0; -1: no memory
cdef void heap_remove(Heap *heap, Delivery *delivery) noexcept nogil
cdef void heap_moved(Heap *heap, Delivery *delivery) noexcept nogil         # after its deadline changed
cdef void heap_free(Heap *heap) noexcept nogil


cdef inline Delivery *heap_first(Heap *heap) noexcept nogil:
    return heap.items[0].delivery if heap.count else NULL
