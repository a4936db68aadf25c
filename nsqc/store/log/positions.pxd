# Positions in a log: sets of finished offsets, waiting records, and who uses which segment.

from libc.stdint cimport int64_t, uint32_t

from nsqc.store.log.segment cimport Segments


# ====================================================================== offsets
# Sets of offsets, as ranges: the unfinished messages of a channel, or the finished ones ahead of its cursor. Blocks
# hold a few hundred ranges each, so a change costs a binary search and moves part of one block. No Python; a set has
# one owner, and no lock.

cdef enum:
    NO_ATTEMPTS = -1        # the number of deliveries is unknown

cdef struct Range:
    int64_t first, end      # end is the offset after the last
    int64_t due_ns          # wall clock, since 1970; 0: at once
    int attempts

cdef struct RangeBlock:
    Range *ranges           # owned
    uint32_t count
    int64_t room

cdef struct OffsetSet:      # disjoint ranges, in order; adjacent ones differ in due_ns or attempts
    RangeBlock *blocks      # owned; never empty
    int64_t block_count, block_room
    int64_t count           # ranges

cdef struct RangeWalk:      # a position in a set; all zeros: the first. Changing the set ends the walk
    int64_t block
    uint32_t at


# 0, or -1: no memory. put: sets these offsets to this range, and replaces existing ranges there.
cdef int offsets_put(OffsetSet *offsets, const Range *added) noexcept nogil
cdef int offsets_add(OffsetSet *offsets, int64_t first, int64_t end) noexcept nogil     # without attempts
cdef int offsets_remove(OffsetSet *offsets, int64_t first, int64_t end) noexcept nogil
cdef bint offsets_have(const OffsetSet *offsets, int64_t offset) noexcept nogil
# The next range, in ascending order; NULL at the end.
cdef Range *offsets_next(const OffsetSet *offsets, RangeWalk *walk) noexcept nogil
# Begins a walk at the range that contains an offset, or the first after it.
cdef RangeWalk offsets_from(const OffsetSet *offsets, int64_t offset) noexcept nogil
cdef void offsets_free(OffsetSet *offsets) noexcept nogil       # empties it


# ====================================================================== waiting
# Requeued and deferred messages of a channel, without bodies: by offset.

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
# Moves items with at least N attempts to the front; the order of the others may change.
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


# ====================================================================== uses
# Which segments a cursor still needs: counts of delivered, unfinished messages.

cdef struct Use:            # of a segment
    int64_t first           # offset of its first record
    int64_t limit           # offset after its last, as known then
    int64_t count           # unfinished messages before next that lie in it

cdef struct Uses:           # in order: items[first : first + count]
    Use *items              # owned
    int64_t first, count, room


# One more message of a segment is unfinished; never of one before the last. False: no memory.
cdef inline bint use_add(Uses *uses, Segments *segments, int64_t offset) noexcept:
    cdef Use *last
    if uses.count:
        last = &uses.items[uses.first + uses.count - 1]
        if last.first <= offset < last.limit:
            last.count += 1
            return True
    return use_begin(uses, segments, offset)

# A message is finished.
cdef inline void use_end(Uses *uses, int64_t offset) noexcept:
    cdef Use *last
    if uses.count:
        last = &uses.items[uses.first + uses.count - 1]
        if last.first <= offset:
            last.count -= 1
        else:
            use_end_before(uses, offset)

cdef bint use_begin(Uses *uses, Segments *segments, int64_t offset) noexcept    # use_add() if the last one lacks it
cdef void use_end_before(Uses *uses, int64_t offset) noexcept                   # use_end(), not of the last
cdef void drop_unused(Uses *uses) noexcept                                      # the oldest ones
# Drops the uses of segments that end before an offset, because they are removed; True: one was needed.
cdef bint drop_before(Uses *uses, int64_t offset) noexcept
