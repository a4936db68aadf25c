"""Requeued and deferred messages of a channel. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from nsqc.store.log.array cimport array_room

cdef enum:
    BLOCK_ITEMS = 170
    FIRST_ROOM = 64


cdef int requeued_push(RequeuedFifo *fifo, Requeued *item) noexcept nogil:
    cdef RequeuedBlock *block
    if fifo.tail is NULL or fifo.end == BLOCK_ITEMS:
        block = <RequeuedBlock *> malloc(sizeof(RequeuedBlock))
        if block is NULL:
            return -1
        block.next = NULL
        if fifo.tail is NULL:
            fifo.head = block
            fifo.first = 0
        else:
            fifo.tail.next = block
        fifo.tail = block
        fifo.end = 0
    fifo.tail.items[fifo.end] = item[0]
    fifo.end += 1
    fifo.count += 1
    return 0


cdef void requeued_pop(RequeuedFifo *fifo) noexcept nogil:
    cdef RequeuedBlock *block = fifo.head
    fifo.first += 1
    fifo.count -= 1
    if fifo.count == 0 or fifo.first == BLOCK_ITEMS:
        fifo.head = block.next
        fifo.passed += fifo.first
        fifo.first = 0
        if fifo.head is NULL:
            fifo.tail = NULL
        free(block)


cdef void requeued_free(RequeuedFifo *fifo) noexcept nogil:
    cdef RequeuedBlock *block
    cdef int64_t end = fifo.passed + fifo.first + fifo.count
    while fifo.head is not NULL:
        block = fifo.head
        fifo.head = block.next
        free(block)
    memset(fifo, 0, sizeof(fifo[0]))
    fifo.passed = end


cdef void requeued_advance(RequeuedFifo *fifo, uint32_t attempts) noexcept nogil:
    cdef RequeuedBlock *block = fifo.head
    cdef RequeuedBlock *to = fifo.head
    cdef int index = fifo.first, end, place = fifo.first
    cdef Requeued item
    while block is not NULL:
        end = fifo.end if block == fifo.tail else BLOCK_ITEMS
        while index < end:
            if block.items[index].attempts >= attempts:
                item = block.items[index]
                block.items[index] = to.items[place]
                to.items[place] = item
                place += 1
                if place == BLOCK_ITEMS:
                    to, place = to.next, 0
            index += 1
        index = 0
        block = block.next


cdef int64_t requeued_least(RequeuedFifo *fifo, int64_t least) noexcept nogil:
    cdef RequeuedBlock *block = fifo.head
    cdef int index = fifo.first, end
    while block is not NULL:
        end = fifo.end if block == fifo.tail else BLOCK_ITEMS
        while index < end:
            least = min(least, block.items[index].offset)
            index += 1
        index = 0
        block = block.next
    return least


cdef int deferred_push(DeferredHeap *heap, Deferred *item) noexcept nogil:
    if array_room(<void **> &heap.items, &heap.room, heap.count + 1, sizeof(Deferred), FIRST_ROOM) < 0:
        return -1
    heap.count += 1
    rise(heap, heap.count - 1, item[0])
    return 0


cdef void deferred_pop(DeferredHeap *heap) noexcept nogil:
    deferred_take(heap, 0)


cdef void deferred_take(DeferredHeap *heap, int64_t at) noexcept nogil:
    cdef int64_t child
    cdef Deferred last
    heap.count -= 1
    if heap.count == 0:
        deferred_free(heap)
        return
    if at == heap.count:
        return
    last = heap.items[heap.count]
    if at > 0 and last.due_ns < heap.items[(at - 1) // 2].due_ns:
        rise(heap, at, last)
        return
    while True:
        child = 2 * at + 1
        if child >= heap.count:
            break
        if child + 1 < heap.count and heap.items[child + 1].due_ns < heap.items[child].due_ns:
            child += 1
        if last.due_ns <= heap.items[child].due_ns:
            break
        heap.items[at] = heap.items[child]
        at = child
    heap.items[at] = last


cdef void rise(DeferredHeap *heap, int64_t at, Deferred item) noexcept nogil:
    """Puts an item to an index or above."""
    cdef int64_t parent
    while at > 0:
        parent = (at - 1) // 2
        if heap.items[parent].due_ns <= item.due_ns:
            break
        heap.items[at] = heap.items[parent]
        at = parent
    heap.items[at] = item


cdef void deferred_free(DeferredHeap *heap) noexcept nogil:
    free(heap.items)
    memset(heap, 0, sizeof(heap[0]))


cdef int64_t deferred_least(DeferredHeap *heap, int64_t least) noexcept nogil:
    cdef int64_t at
    for at in range(heap.count):
        least = min(least, heap.items[at].offset)
    return least
