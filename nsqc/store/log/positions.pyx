"""Positions in a log: sets of finished offsets, waiting records, and who uses which segment. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

from nsqc.store.log.frame cimport array_below, array_room, queue_room
from nsqc.store.log.segment cimport Segment, segments_find


# ====================================================================== offsets

cdef enum:
    FIRST_RANGES = 4        # of a new block; most sets are small
    MOST_RANGES = 256


cdef RangeWalk offsets_from(const OffsetSet *offsets, int64_t offset) noexcept nogil:
    cdef RangeWalk found
    cdef int64_t low = 0, high = offsets.block_count, middle
    cdef const RangeBlock *block
    while low < high:               # find the first block that ends after the offset
        middle = (low + high) // 2
        block = &offsets.blocks[middle]
        if block.ranges[block.count - 1].end <= offset:
            low = middle + 1
        else:
            high = middle
    found.block = low
    found.at = 0
    if low < offsets.block_count:
        block = &offsets.blocks[low]
        found.at = <uint32_t> array_below(&block.ranges[0].end, sizeof(Range), block.count, offset + 1)
    return found


cdef inline Range *range_at(const OffsetSet *offsets, const RangeWalk *walk) noexcept nogil:
    """NULL: past the last."""
    return &offsets.blocks[walk.block].ranges[walk.at] if walk.block < offsets.block_count else NULL


cdef Range *offsets_next(const OffsetSet *offsets, RangeWalk *walk) noexcept nogil:
    cdef Range *found = range_at(offsets, walk)
    if found is not NULL:
        walk.at += 1
        if walk.at == offsets.blocks[walk.block].count:
            walk.block += 1
            walk.at = 0
    return found


cdef inline bint step_back(const OffsetSet *offsets, RangeWalk *walk) noexcept nogil:
    """To the previous range; False: none."""
    if walk.at == 0:
        if walk.block == 0:
            return False
        walk.block -= 1
        walk.at = offsets.blocks[walk.block].count
    walk.at -= 1
    return True


cdef inline int grow_block(RangeBlock *block, int64_t room) noexcept nogil:
    return array_room(<void **> &block.ranges, &block.room, room, sizeof(Range), FIRST_RANGES)


cdef int new_block(OffsetSet *offsets, int64_t at, int64_t room) noexcept nogil:
    """Inserts an empty block at this index."""
    cdef RangeBlock block
    memset(&block, 0, sizeof(block))
    if (array_room(<void **> &offsets.blocks, &offsets.block_room, offsets.block_count + 1, sizeof(RangeBlock), 1) < 0
            or grow_block(&block, room) < 0):
        return -1
    memmove(&offsets.blocks[at + 1], &offsets.blocks[at],
            <size_t> (offsets.block_count - at) * sizeof(RangeBlock))
    offsets.blocks[at] = block
    offsets.block_count += 1
    return 0


cdef int make_room(OffsetSet *offsets, RangeWalk *walk) noexcept nogil:
    """Makes room for a range at this position, which may move."""
    cdef RangeBlock *block
    cdef uint32_t kept
    if walk.block == offsets.block_count and walk.block > 0:
        walk.block -= 1
        walk.at = offsets.blocks[walk.block].count
    if offsets.block_count == 0 or (walk.at == MOST_RANGES and walk.block + 1 == offsets.block_count):
        # Ranges added in order fill their blocks.
        walk.block = offsets.block_count
        walk.at = 0
        return new_block(offsets, walk.block, FIRST_RANGES if walk.block == 0 else MOST_RANGES)
    block = &offsets.blocks[walk.block]
    if block.count < block.room:
        return 0
    if block.room < MOST_RANGES:
        return grow_block(block, 2 * block.room)
    if new_block(offsets, walk.block + 1, MOST_RANGES) < 0:
        return -1
    block = &offsets.blocks[walk.block]
    kept = block.count // 2
    block[1].count = block.count - kept
    block.count = kept
    memcpy(block[1].ranges, block.ranges + kept, block[1].count * sizeof(Range))
    if walk.at > kept:
        walk.at -= kept
        walk.block += 1
    return 0


cdef int insert(OffsetSet *offsets, RangeWalk *walk, const Range *added) noexcept nogil:
    """Inserts before the range at this position, which then points to the new one."""
    cdef RangeBlock *block
    if make_room(offsets, walk) < 0:
        return -1
    block = &offsets.blocks[walk.block]
    memmove(block.ranges + walk.at + 1, block.ranges + walk.at, (block.count - walk.at) * sizeof(Range))
    block.ranges[walk.at] = added[0]
    block.count += 1
    offsets.count += 1
    return 0


cdef void erase(OffsetSet *offsets, RangeWalk *walk) noexcept nogil:
    """Removes the range at this position, which then points to the next one."""
    cdef RangeBlock *block = &offsets.blocks[walk.block]
    block.count -= 1
    offsets.count -= 1
    if block.count == 0:
        free(block.ranges)
        offsets.block_count -= 1
        memmove(block, block + 1, <size_t> (offsets.block_count - walk.block) * sizeof(RangeBlock))
        return
    memmove(block.ranges + walk.at, block.ranges + walk.at + 1, (block.count - walk.at) * sizeof(Range))
    if walk.at == block.count:
        walk.block += 1
        walk.at = 0


cdef int offsets_remove(OffsetSet *offsets, int64_t first, int64_t end) noexcept nogil:
    cdef RangeWalk walk = offsets_from(offsets, first)
    cdef Range *found = range_at(offsets, &walk)
    cdef Range rest
    if end <= first:
        return 0
    if found is not NULL and found.first < first:
        rest = found[0]
        if rest.end > end:
            rest.end = first
            if insert(offsets, &walk, &rest) < 0:
                return -1
            offsets_next(offsets, &walk)
            range_at(offsets, &walk).first = end
            return 0
        found.end = first
        offsets_next(offsets, &walk)
    found = range_at(offsets, &walk)
    while found is not NULL and found.end <= end:
        erase(offsets, &walk)
        found = range_at(offsets, &walk)
    if found is not NULL and found.first < end:
        found.first = end
    return 0


cdef inline bint follows(const Range *left, const Range *right) noexcept nogil:
    """Whether two ranges can be merged."""
    return left.end == right.first and left.attempts == right.attempts and left.due_ns == right.due_ns


cdef int offsets_put(OffsetSet *offsets, const Range *added) noexcept nogil:
    cdef Range joined = added[0]
    cdef RangeWalk walk, before
    cdef Range *found
    if joined.end <= joined.first:
        return 0
    if offsets_remove(offsets, joined.first, joined.end) < 0:
        return -1
    walk = offsets_from(offsets, joined.first)
    found = range_at(offsets, &walk)
    if found is not NULL and follows(&joined, found):
        joined.end = found.end
        found.first = joined.first
    before = walk
    if step_back(offsets, &before) and follows(range_at(offsets, &before), &joined):
        range_at(offsets, &before).end = joined.end
        if joined.end > added.end:
            erase(offsets, &walk)
        return 0
    return 0 if joined.end > added.end else insert(offsets, &walk, &joined)


cdef int offsets_add(OffsetSet *offsets, int64_t first, int64_t end) noexcept nogil:
    cdef Range added
    added.first, added.end, added.due_ns, added.attempts = first, end, 0, NO_ATTEMPTS
    return offsets_put(offsets, &added)


cdef bint offsets_have(const OffsetSet *offsets, int64_t offset) noexcept nogil:
    cdef RangeWalk walk = offsets_from(offsets, offset)
    cdef const Range *found = range_at(offsets, &walk)
    return found is not NULL and found.first <= offset


cdef void offsets_free(OffsetSet *offsets) noexcept nogil:
    cdef int64_t at
    for at in range(offsets.block_count):
        free(offsets.blocks[at].ranges)
    free(offsets.blocks)
    memset(offsets, 0, sizeof(OffsetSet))


# ====================================================================== waiting

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


# ====================================================================== uses

cdef enum:
    FIRST_USES = 4


cdef bint use_begin(Uses *uses, Segments *segments, int64_t offset) noexcept:
    cdef Use *last = &uses.items[uses.first + uses.count - 1] if uses.count else NULL
    cdef Segment *segment = &segments.items[segments_find(segments, offset)]
    if last is not NULL and last.first == segment.first:
        last.limit = segment.end
        last.count += 1
        return True
    drop_unused(uses)
    if queue_room(<void **> &uses.items, &uses.first, uses.count, &uses.room, sizeof(Use), FIRST_USES) < 0:
        return False
    last = &uses.items[uses.first + uses.count]
    last.first = segment.first
    last.limit = segment.end
    last.count = 1
    uses.count += 1
    return True


cdef void use_end_before(Uses *uses, int64_t offset) noexcept:
    cdef int64_t count = array_below(&uses.items[uses.first].first, sizeof(Use), uses.count, offset + 1)
    if count:
        uses.items[uses.first + count - 1].count -= 1


cdef bint drop_before(Uses *uses, int64_t offset) noexcept:
    cdef bint needed = False
    while uses.count and uses.items[uses.first].limit <= offset:
        needed |= uses.items[uses.first].count > 0
        uses.first += 1
        uses.count -= 1
    return needed


cdef void drop_unused(Uses *uses) noexcept:
    while uses.count and uses.items[uses.first].count == 0:
        uses.first += 1
        uses.count -= 1
