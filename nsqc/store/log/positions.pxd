# Positions in a log: sets of finished offsets, waiting records, who uses which segment, and the states of channels that
# a journal's operations make.

from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from nsqc.store.log.frame cimport MOST_OFFSET
from nsqc.store.log.segment cimport Segments
from nsqc.wire.const cimport MAX_NAME_BYTES
from nsqc.wire.hton cimport load_i32, load_i64, load_u16, store_i32, store_i64, store_u16


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


# ====================================================================== ops
# Operations of channels, as stored in journals: see docs/ondisk.md. Header only.

cdef enum:
    OP_ADVANCE = 1          # offset: the cursor rises to it
    OP_FIN = 2              # offset, end: finished
    OP_REQ = 3              # offset, attempts, due: waits again
    OP_RESET = 4            # offset: the cursor; nothing is unfinished
    OP_NAME = 5             # the channel's
    OP_DROP = 6             # the channel is deleted
    OP_SKIP = 7             # offset, end: finished, though ahead of the cursor
    OP_BYTES = 24
    OP_END_AT = 16          # where the end of OP_FIN lies
    NAME_ROOM = 72
    TOPIC_NUMBER = 0
    MOST_NUMBER = 0x7FFFFFFF    # of a channel: the next ones are counted up from it

cdef struct Op:
    int kind, name_bytes
    uint32_t number, attempts
    int64_t offset, value
    const char *c_name


cdef inline int64_t op_length(int kind) noexcept nogil:
    return OP_BYTES + NAME_ROOM if kind == OP_NAME else OP_BYTES


cdef inline void op_store(char *c_to, const Op *op) noexcept nogil:     # op_length() bytes
    c_to[0] = <char> op.kind
    c_to[1] = <char> op.name_bytes
    store_u16(c_to + 2, <uint16_t> min(op.attempts, <uint32_t> 65535))
    store_i32(c_to + 4, <int> op.number)
    store_i64(c_to + 8, op.offset)
    store_i64(c_to + OP_END_AT, op.value)
    if op.kind == OP_NAME:
        memset(c_to + OP_BYTES, 0, NAME_ROOM)
        memcpy(c_to + OP_BYTES, op.c_name, <size_t> op.name_bytes)


cdef inline bint op_load(const char *c_from, int64_t have, Op *op) noexcept nogil:
    # False: this is not an operation, or its numbers are impossible: a file may come from anyone.
    if have < OP_BYTES or have < op_length(c_from[0]):
        return False
    op.kind = c_from[0]
    op.name_bytes = c_from[1]
    op.attempts = load_u16(c_from + 2)
    op.number = <uint32_t> load_i32(c_from + 4)
    op.offset = load_i64(c_from + 8)
    op.value = load_i64(c_from + OP_END_AT)
    op.c_name = c_from + OP_BYTES
    if op.number > MOST_NUMBER:
        return False
    if op.kind == OP_NAME:
        return 0 < op.name_bytes <= MAX_NAME_BYTES
    if op.kind == OP_FIN or op.kind == OP_SKIP:
        return 0 <= op.offset < op.value < MOST_OFFSET
    return OP_ADVANCE <= op.kind <= OP_DROP and 0 <= op.offset < MOST_OFFSET


# ====================================================================== states of channels
# The states of a log topic's channels, built from operations. All C; may run on any thread. A state has one owner.
#
# Lost operations cause redeliveries, never lost messages: only offsets read as finished are finished. The exception is
# a lost OP_RESET to an earlier offset (a seek back), so writers write frames with OP_RESET or OP_NAME twice.

cdef struct ChannelState:
    uint32_t number             # TOPIC_NUMBER: its cursor is the first offset hidden from channels
    int name_bytes              # 0: the name is lost to damage; or this is the topic
    char[MAX_NAME_BYTES + 1] name
    int64_t cursor              # next offset never delivered
    OffsetSet out               # below the cursor: unfinished
    OffsetSet skips             # at or ahead of the cursor: skipped at delivery

cdef struct JournalState:
    ChannelState **channels     # owned, by number
    int64_t count, room
    uint32_t *by_name           # owned: numbers of channels, hashed by name; 0: free. Some are outdated
    int64_t name_count, name_room
    int64_t at                  # number of the last applied frame
    int64_t damaged             # places with lost frames, and invalid operations


cdef void state_free(JournalState *state) noexcept nogil            # resets it to all zeros, as at the start
# Applies the operations of a frame, up to the first invalid one. 0 or ENOMEM.
cdef int state_apply(JournalState *state, const char *c_ops, int64_t length) noexcept nogil
cdef ChannelState *state_channel(const JournalState *state, uint32_t number) noexcept nogil     # NULL: none
