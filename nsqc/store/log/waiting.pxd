# Requeued and deferred messages of a channel, without bodies: by offset.

from libc.stdint cimport int64_t, uint32_t


cdef struct Requeued:       # waits for redelivery
    int64_t offset
    int64_t after           # the end of the log when it was requeued: earlier offsets go first
    uint32_t attempts


cdef struct Deferred:       # waits for its due time
    int64_t due_ns          # monotonic
    int64_t offset
    uint32_t attempts


cdef struct RequeuedBlock:
    RequeuedBlock *next
    Requeued[170] items     # with next, just below 4 KiB


cdef struct RequeuedFifo:   # a chain of blocks: growing it moves nothing
    RequeuedBlock *head     # owned, with all blocks after it; NULL while empty
    RequeuedBlock *tail
    int first          # index of the oldest item in head
    int end            # index after the newest item in tail
    int64_t count
    int64_t passed     # position of head's first item: items are numbered, and no number is reused


cdef struct DeferredHeap:   # by due time
    Deferred *items         # owned
    int64_t count, room


cdef int requeued_push(RequeuedFifo *fifo, Requeued *item) noexcept nogil       # -1: no memory
cdef inline Requeued *requeued_first(RequeuedFifo *fifo) noexcept nogil:        # NULL: empty
    return &fifo.head.items[fifo.first] if fifo.count else NULL
cdef void requeued_pop(RequeuedFifo *fifo) noexcept nogil       # must not be empty
cdef void requeued_free(RequeuedFifo *fifo) noexcept nogil
# Moves items with at least so many attempts to the front; the order of the others may change.
cdef void requeued_advance(RequeuedFifo *fifo, uint32_t attempts) noexcept nogil
cdef int64_t requeued_least(RequeuedFifo *fifo, int64_t least) noexcept nogil   # the least offset, or least

cdef int deferred_push(DeferredHeap *heap, Deferred *item) noexcept nogil       # -1: no memory
cdef inline Deferred *deferred_first(DeferredHeap *heap) noexcept nogil:        # NULL: empty
    return &heap.items[0] if heap.count else NULL
cdef void deferred_pop(DeferredHeap *heap) noexcept nogil       # must not be empty
# Removes the item at an index. The last item takes its place, and sinks or rises from there.
cdef void deferred_take(DeferredHeap *heap, int64_t at) noexcept nogil
cdef void deferred_free(DeferredHeap *heap) noexcept nogil
cdef int64_t deferred_least(DeferredHeap *heap, int64_t least) noexcept nogil
