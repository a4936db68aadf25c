"""Positions in a log: sets of finished offsets, waiting records, uses of segments, states of channels. See the .pxd."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memmove, memset

from nsqc.store.log.frame cimport array_below, array_room, queue_room
from nsqc.store.log.names import REMOVED, SETTLED
from nsqc.store.log.segment cimport Segment, segments_find
from nsqc.store.siphash cimport nsqc_siphash
from nsqc.wire.parser cimport name_is_ephemeral, name_is_valid


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


# ====================================================================== states of channels

cdef enum:
    FIRST_CHANNELS = 4
    FIRST_NAMES = 16

cdef bytes settled = SETTLED
cdef bytes removed = REMOVED
cdef const char *c_settled = settled
cdef const char *c_removed = removed
cdef int SETTLED_BYTES = len(settled)
cdef int REMOVED_BYTES = len(removed)


# ---------------------------------------------------------------------- channels

cdef void free_channel(ChannelState *channel) noexcept nogil:
    offsets_free(&channel.out)
    offsets_free(&channel.skips)
    free(channel)


cdef void state_free(JournalState *state) noexcept nogil:
    cdef int64_t at
    for at in range(state.count):
        free_channel(state.channels[at])
    free(state.channels)
    free(state.by_name)
    memset(state, 0, sizeof(JournalState))


cdef int64_t place_of(const JournalState *state, uint32_t number) noexcept nogil:
    """The index of the first channel with this number or a higher one."""
    cdef int64_t low = 0, high = state.count, middle
    while low < high:
        middle = (low + high) // 2
        if state.channels[middle].number < number:
            low = middle + 1
        else:
            high = middle
    return low


cdef ChannelState *state_channel(const JournalState *state, uint32_t number) noexcept nogil:
    cdef int64_t at = place_of(state, number)
    return state.channels[at] if at < state.count and state.channels[at].number == number else NULL


cdef ChannelState *add_channel(JournalState *state, uint32_t number) noexcept nogil:
    """A channel that begins at the first existing offset; NULL: no memory."""
    cdef int64_t at = place_of(state, number)
    cdef ChannelState *channel
    if array_room(<void **> &state.channels, &state.room, state.count + 1, sizeof(void *), FIRST_CHANNELS) < 0:
        return NULL
    channel = <ChannelState *> calloc(1, sizeof(ChannelState))
    if channel is not NULL:
        channel.number = number
        memmove(&state.channels[at + 1], &state.channels[at], <size_t> (state.count - at) * sizeof(void *))
        state.channels[at] = channel
        state.count += 1
    return channel


cdef void drop_channel(JournalState *state, ChannelState *channel) noexcept nogil:
    cdef int64_t at = place_of(state, channel.number)
    free_channel(channel)
    state.count -= 1
    memmove(&state.channels[at], &state.channels[at + 1], <size_t> (state.count - at) * sizeof(void *))


cdef inline bint has_name(const ChannelState *channel, const char *c_name, int bytes) noexcept nogil:
    return channel.name_bytes == bytes and memcmp(channel.name, c_name, <size_t> bytes) == 0


cdef int64_t name_slot(const JournalState *state, const char *c_name, int bytes) noexcept nogil:
    """Where the table has the channel of this name, or is free for it."""
    cdef uint64_t[2] key = [<uint64_t> state.by_name, 0]    # an address that no author of a file can know
    cdef uint64_t low, high
    cdef const ChannelState *other
    cdef int64_t at
    nsqc_siphash(key, c_name, bytes, 1, 3, &low, &high)
    at = <int64_t> low & (state.name_room - 1)
    while state.by_name[at]:
        other = state_channel(state, state.by_name[at])
        if other is not NULL and has_name(other, c_name, bytes):
            break
        at = (at + 1) & (state.name_room - 1)
    return at


cdef int grow_names(JournalState *state) noexcept nogil:
    """Makes room for another name; drops outdated ones. 0 or -1."""
    cdef uint32_t *old = state.by_name
    cdef ChannelState *channel
    cdef int64_t room = FIRST_NAMES, index
    if 2 * state.name_count < state.name_room:
        return 0
    while room < 4 * (state.count + 1):
        room *= 2
    state.by_name = <uint32_t *> calloc(<size_t> room, sizeof(uint32_t))
    if state.by_name is NULL:
        state.by_name = old
        return -1
    free(old)
    state.name_room, state.name_count = room, 0
    for index in range(state.count):
        channel = state.channels[index]
        if channel.name_bytes:
            state.by_name[name_slot(state, channel.name, channel.name_bytes)] = channel.number
            state.name_count += 1
    return 0


cdef int name_channel(JournalState *state, ChannelState *channel, const Op *op) noexcept nogil:
    """Drops an earlier channel of this name: its own drop operation is lost. 0 or -1."""
    cdef int64_t at
    if has_name(channel, op.c_name, op.name_bytes):
        return 0
    if grow_names(state) < 0:
        return -1
    at = name_slot(state, op.c_name, op.name_bytes)
    if state.by_name[at]:
        drop_channel(state, state_channel(state, state.by_name[at]))
    else:
        state.name_count += 1
    state.by_name[at] = channel.number
    memcpy(channel.name, op.c_name, <size_t> op.name_bytes)
    channel.name_bytes = op.name_bytes
    return 0


cdef bint names_channel(const Op *op) noexcept nogil:
    """Whether it names a channel that has a place in journals, or an entry of the log itself."""
    if op.number == TOPIC_NUMBER:
        return False
    if (op.name_bytes == SETTLED_BYTES and memcmp(op.c_name, c_settled, <size_t> SETTLED_BYTES) == 0
            or op.name_bytes == REMOVED_BYTES and memcmp(op.c_name, c_removed, <size_t> REMOVED_BYTES) == 0):
        return True
    return name_is_valid(op.c_name, op.name_bytes) and not name_is_ephemeral(op.c_name, op.name_bytes)


# ---------------------------------------------------------------------- operations

cdef void reset(ChannelState *channel, int64_t cursor) noexcept nogil:
    offsets_free(&channel.out)
    offsets_free(&channel.skips)
    channel.cursor = cursor


cdef int advance(ChannelState *channel, int64_t cursor) noexcept nogil:
    """Marks the offsets in between unfinished, except skipped ones. 0 or -1."""
    cdef RangeWalk walk
    cdef Range *skip
    cdef int64_t first = channel.cursor
    if cursor <= first:
        return 0
    if channel.skips.count:
        walk = offsets_from(&channel.skips, first)
        skip = offsets_next(&channel.skips, &walk)
        while skip is not NULL and skip.first < cursor:
            if offsets_add(&channel.out, first, skip.first) < 0:
                return -1
            first = skip.end
            skip = offsets_next(&channel.skips, &walk)
        if offsets_remove(&channel.skips, 0, cursor) < 0:
            return -1
    channel.cursor = cursor
    return offsets_add(&channel.out, first, cursor)


cdef int apply_one(JournalState *state, ChannelState *channel, const Op *op) noexcept nogil:
    """0 or -1."""
    cdef Range waits
    if op.kind == OP_NAME:
        return name_channel(state, channel, op)
    elif op.kind == OP_RESET:
        reset(channel, op.offset)
    elif op.kind == OP_ADVANCE:
        if op.offset < channel.cursor:
            # In between the channel was set back; how far is unknown.
            state.damaged += 1
            reset(channel, 0)
        return advance(channel, op.offset)
    elif op.kind == OP_SKIP:
        return offsets_add(&channel.skips, max(op.offset, channel.cursor), op.value)
    elif op.kind == OP_FIN:
        # The cursor got there, even if the operation for that is lost.
        return -1 if advance(channel, op.value) < 0 else offsets_remove(&channel.out, op.offset, op.value)
    elif op.kind == OP_REQ:
        waits.first, waits.end, waits.due_ns, waits.attempts = op.offset, op.offset + 1, op.value, <int> op.attempts
        return -1 if advance(channel, waits.end) < 0 else offsets_put(&channel.out, &waits)
    return 0


cdef int state_apply(JournalState *state, const char *c_ops, int64_t length) noexcept nogil:
    cdef ChannelState *channel = NULL
    cdef int64_t at = 0
    cdef Op op
    while at < length:
        if not op_load(c_ops + at, length - at, &op) or op.kind == OP_NAME and not names_channel(&op):
            state.damaged += 1
            break
        at += op_length(op.kind)
        if channel is NULL or channel.number != op.number:
            channel = state_channel(state, op.number)
        if op.kind == OP_DROP:
            if channel is not NULL:
                drop_channel(state, channel)
            channel = NULL
            continue
        if channel is NULL:
            channel = add_channel(state, op.number)
        if channel is NULL or apply_one(state, channel, &op) < 0:
            return ENOMEM
    return 0
