"""The state of a log topic's channels. See the .pxd."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memmove, memset

from nsqc.store.log.array cimport array_room
from nsqc.store.log.offsets cimport (Range, RangeWalk, offsets_add, offsets_free, offsets_from, offsets_next,
                                     offsets_put, offsets_remove)
from nsqc.store.log.ops cimport (OP_ADVANCE, OP_DROP, OP_FIN, OP_NAME, OP_REQ, OP_RESET, OP_SKIP, TOPIC_NUMBER, Op,
                                 op_length, op_load)
from nsqc.store.siphash cimport nsqc_siphash
from nsqc.wire.names cimport name_is_ephemeral, name_is_valid

from nsqc.store.log.names import REMOVED, SETTLED

cdef enum:
    FIRST_ROOM = 4
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
    if array_room(<void **> &state.channels, &state.room, state.count + 1, sizeof(void *), FIRST_ROOM) < 0:
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
