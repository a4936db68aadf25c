"""Cursors of the channels of a log topic, and the operations that change them. See the .pxd."""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from nsqc.store.log.offsets cimport (Range, Waiting, Walk, offsets_add, offsets_free, offsets_from, offsets_next,
                                     offsets_remove, waiting_free, waiting_from, waiting_next, waiting_put,
                                     waiting_remove)
from nsqc.store.log.ops cimport (END_NUMBER, OP_ADVANCE, OP_DROP, OP_END, OP_FIN, OP_NAME, OP_OUT, OP_REQ, OP_RESET,
                                 OP_SKIP, SECTION_BYTES, TOPIC_NUMBER)
from nsqc.wire.crc32c cimport crc32c
from nsqc.wire.hton cimport load_i32, load_i64, store_i32

cdef const char *JOURNAL_MAGIC = b"NSQCJNL1"

cdef enum:
    MAGIC_BYTES = 8
    FIRST_BUCKETS = 16
    VARINT_BYTES = 10           # of the longest varint

cdef struct Ops:
    const char *c_at
    const char *c_end
    int64_t last            # what offsets are relative to
    bint damaged


# ---------------------------------------------------------------------- heads

cdef void journal_head(char *c_to, uint32_t number) noexcept nogil:
    memcpy(c_to, JOURNAL_MAGIC, MAGIC_BYTES)
    store_i32(c_to + 8, <int> number)
    store_i32(c_to + 12, <int> crc32c(<const unsigned char *> c_to, 12))


cdef bint journal_head_sound(const char *c_from, uint32_t number) noexcept nogil:
    return (memcmp(c_from, JOURNAL_MAGIC, MAGIC_BYTES) == 0 and <uint32_t> load_i32(c_from + 8) == number
            and <uint32_t> load_i32(c_from + 12) == crc32c(<const unsigned char *> c_from, 12))


cdef bint sections_begin(const char *c_payload, int64_t length) noexcept nogil:
    return length > SECTION_BYTES and <uint32_t> load_i32(c_payload + 4) <= length - SECTION_BYTES


cdef bint sections_plausible(const char *c_payload, int64_t length) noexcept nogil:
    cdef int64_t at = 0, ops
    while length - at >= SECTION_BYTES:
        ops = <uint32_t> load_i32(c_payload + at + 4)
        if ops > length - at - SECTION_BYTES:
            return False
        at += SECTION_BYTES + ops
    return at == length


cdef bint is_end(const char *c_payload, int64_t length) noexcept nogil:
    return (length == SECTION_BYTES + 1 and load_i32(c_payload) == END_NUMBER and load_i32(c_payload + 4) == 1
            and c_payload[SECTION_BYTES] == OP_END)


# ---------------------------------------------------------------------- channels

cdef void state_init(LogState *state) noexcept nogil:
    memset(state, 0, sizeof(LogState))


cdef void free_channel(CursorState *channel) noexcept nogil:
    offsets_free(&channel.out)
    offsets_free(&channel.skips)
    waiting_free(&channel.waiting)
    free(channel)


cdef void state_free(LogState *state) noexcept nogil:
    cdef int64_t at
    for at in range(state.count):
        free_channel(state.channels[at])
    free(state.channels)
    free(state.by_number)
    free(state.by_name)
    state_init(state)


cdef inline uint32_t bucket_of(LogState *state, uint32_t number) noexcept nogil:
    return number & state.mask


cdef inline uint32_t bucket_of_name(LogState *state, const char *c_name, uint8_t length) noexcept nogil:
    return crc32c(<const unsigned char *> c_name, length) & state.mask


cdef CursorState *state_channel(LogState *state, uint32_t number) noexcept nogil:
    cdef CursorState *channel
    if state.count == 0:
        return NULL
    channel = state.by_number[bucket_of(state, number)]
    while channel is not NULL and channel.number != number:
        channel = channel.next_number
    return channel


cdef CursorState *state_named(LogState *state, const char *c_name, uint8_t bytes) noexcept nogil:
    cdef CursorState *channel
    if state.count == 0:
        return NULL
    channel = state.by_name[bucket_of_name(state, c_name, bytes)]
    while channel is not NULL and not (channel.name_bytes == bytes and memcmp(channel.name, c_name, bytes) == 0):
        channel = channel.next_name
    return channel


cdef void link_number(LogState *state, CursorState *channel) noexcept nogil:
    cdef uint32_t bucket = bucket_of(state, channel.number)
    channel.next_number = state.by_number[bucket]
    state.by_number[bucket] = channel


cdef void link_name(LogState *state, CursorState *channel) noexcept nogil:
    cdef uint32_t bucket = bucket_of_name(state, channel.name, channel.name_bytes)
    channel.next_name = state.by_name[bucket]
    state.by_name[bucket] = channel


cdef void unlink_number(LogState *state, CursorState *channel) noexcept nogil:
    cdef CursorState **link = &state.by_number[bucket_of(state, channel.number)]
    while link[0] is not channel:
        link = &link[0].next_number
    link[0] = channel.next_number


cdef void unlink_name(LogState *state, CursorState *channel) noexcept nogil:
    cdef CursorState **link
    if channel.name_bytes == 0:
        return
    link = &state.by_name[bucket_of_name(state, channel.name, channel.name_bytes)]
    while link[0] is not channel:
        link = &link[0].next_name
    link[0] = channel.next_name
    channel.name_bytes = 0


cdef int make_room(LogState *state) noexcept nogil:
    """For one more channel; 0 or ENOMEM."""
    cdef CursorState **channels
    cdef CursorState **by_number
    cdef CursorState **by_name
    cdef int64_t at, room
    if state.count < state.room:
        return 0
    room = max(<int64_t> FIRST_BUCKETS, 2 * state.room)
    channels = <CursorState **> realloc(state.channels, room * sizeof(void *))
    if channels is NULL:
        return ENOMEM
    state.channels = channels
    by_number = <CursorState **> calloc(room, sizeof(void *))
    by_name = <CursorState **> calloc(room, sizeof(void *))
    if by_number is NULL or by_name is NULL:
        free(by_number)
        free(by_name)
        return ENOMEM
    free(state.by_number)
    free(state.by_name)
    state.by_number = by_number
    state.by_name = by_name
    state.room = room
    state.mask = <uint32_t> room - 1
    for at in range(state.count):
        link_number(state, channels[at])
        if channels[at].name_bytes:
            link_name(state, channels[at])
    return 0


cdef CursorState *add_channel(LogState *state, uint32_t number) noexcept nogil:
    """A channel that begins with the first offset there is; NULL: no memory."""
    cdef CursorState *channel
    if make_room(state) != 0:
        return NULL
    channel = <CursorState *> calloc(1, sizeof(CursorState))
    if channel is NULL:
        return NULL
    channel.number = number
    channel.at = state.count
    state.channels[state.count] = channel
    state.count += 1
    state.highest = max(state.highest, number)
    link_number(state, channel)
    return channel


cdef void drop_channel(LogState *state, CursorState *channel) noexcept nogil:
    unlink_number(state, channel)
    unlink_name(state, channel)
    state.count -= 1
    state.channels[channel.at] = state.channels[state.count]
    state.channels[channel.at].at = channel.at
    free_channel(channel)


cdef void rename_channel(LogState *state, CursorState *channel, const char *c_name, uint8_t length) noexcept nogil:
    cdef CursorState *other = state_named(state, c_name, length)
    if other is channel:
        return
    if other is not NULL:
        drop_channel(state, other)
    unlink_name(state, channel)
    memcpy(channel.name, c_name, length)
    channel.name[length] = 0
    channel.name_bytes = length
    link_name(state, channel)


# ---------------------------------------------------------------------- operations of a channel

cdef int add_out(CursorState *channel, int64_t first, int64_t end) noexcept nogil:
    """These are unfinished. Of those that wait, that is known already. 0 or -1."""
    cdef Walk walk
    cdef Waiting *entry
    if channel.waiting.entries.count:
        walk = waiting_from(&channel.waiting, first)
        entry = waiting_next(&channel.waiting, &walk)
        while entry is not NULL and entry.offset < end:
            if offsets_add(&channel.out, first, entry.offset) < 0:
                return -1
            first = entry.offset + 1
            entry = waiting_next(&channel.waiting, &walk)
    return offsets_add(&channel.out, first, end)


cdef int advance(LogState *state, CursorState *channel, int64_t cursor) noexcept nogil:
    cdef int64_t first = channel.cursor
    cdef Range *skip
    cdef Walk walk
    if cursor < first:
        # Between the two, the channel has been set back, nobody knows how far.
        state.damaged += 1
        reset(channel, 0)
        first = 0
    if channel.skips.offsets:
        walk = offsets_from(&channel.skips, first)
        skip = offsets_next(&channel.skips, &walk)
        while skip is not NULL and skip.first < cursor:
            if add_out(channel, first, skip.first) < 0:
                return -1
            first = max(first, skip.end)
            skip = offsets_next(&channel.skips, &walk)
        if offsets_remove(&channel.skips, 0, cursor) < 0:
            return -1
    channel.cursor = cursor
    return add_out(channel, first, cursor)


cdef int finish(CursorState *channel, int64_t first, int64_t end) noexcept nogil:
    waiting_remove(&channel.waiting, first, end)
    if offsets_remove(&channel.out, first, min(end, channel.cursor)) < 0:
        return -1
    # Ahead of the cursor if what has moved it is lost.
    return offsets_add(&channel.skips, max(first, channel.cursor), end)


cdef int requeue(CursorState *channel, Waiting *entry) noexcept nogil:
    if offsets_remove(&channel.out, entry.offset, entry.offset + 1) < 0:
        return -1
    if entry.offset >= channel.cursor and offsets_add(&channel.skips, entry.offset, entry.offset + 1) < 0:
        return -1
    return waiting_put(&channel.waiting, entry)


cdef void reset(CursorState *channel, int64_t cursor) noexcept nogil:
    offsets_free(&channel.out)
    offsets_free(&channel.skips)
    waiting_free(&channel.waiting)
    channel.cursor = cursor


# ---------------------------------------------------------------------- sections

cdef inline uint64_t take_varint(Ops *ops) noexcept nogil:
    cdef uint64_t value = 0
    cdef uint8_t byte = 128
    cdef int shift = 0
    while byte >= 128:
        if ops.c_at >= ops.c_end or shift >= 7 * VARINT_BYTES:
            ops.damaged = True
            return 0
        byte = <uint8_t> ops.c_at[0]
        value |= <uint64_t> (byte & 127) << shift
        shift += 7
        ops.c_at += 1
    return value


cdef inline int64_t take_offset(Ops *ops) noexcept nogil:
    cdef uint64_t coded = take_varint(ops)
    # Unsigned: what is damaged must not overflow.
    cdef int64_t offset = <int64_t> (<uint64_t> ops.last + ((coded >> 1) ^ (<uint64_t> 0 - (coded & 1))))
    if offset < 0:
        ops.damaged = True
        return 0
    return offset


cdef inline int64_t take_end(Ops *ops, int64_t first) noexcept nogil:
    """Behind a range, of which the count follows."""
    cdef uint64_t count = take_varint(ops)
    if count == 0 or count > <uint64_t> (INT64_MAX - first):
        ops.damaged = True
        return first
    return first + <int64_t> count


cdef int apply_one(LogState *state, CursorState *channel, Ops *ops) noexcept nogil:
    """0 or -1: no memory. Changes nothing if the operation is damaged."""
    cdef int kind = <uint8_t> ops.c_at[0]
    cdef int64_t first, end
    cdef uint64_t attempts
    cdef Waiting entry
    ops.c_at += 1
    if kind == OP_ADVANCE or kind == OP_RESET:
        first = take_offset(ops)
        if ops.damaged:
            return 0
        ops.last = first
        if kind == OP_ADVANCE:
            return advance(state, channel, first)
        reset(channel, first)
        return 0
    if kind == OP_FIN or kind == OP_OUT or kind == OP_SKIP:
        first = take_offset(ops)
        end = take_end(ops, first)
        if ops.damaged:
            return 0
        ops.last = end
        if kind == OP_FIN:
            return finish(channel, first, end)
        if kind == OP_OUT:
            return add_out(channel, first, min(end, channel.cursor))
        return offsets_add(&channel.skips, max(first, channel.cursor), end)
    if kind == OP_REQ:
        entry.offset = take_offset(ops)
        attempts = take_varint(ops)
        if ops.damaged or entry.offset == INT64_MAX or ops.c_end - ops.c_at < 8:
            ops.damaged = True
            return 0
        entry.attempts = <unsigned short> min(attempts, <uint64_t> 65535)
        entry.due_ns = load_i64(ops.c_at)
        ops.c_at += 8
        ops.last = entry.offset
        return requeue(channel, &entry)
    ops.damaged = True
    return 0


cdef void apply_name(LogState *state, CursorState *channel, Ops *ops) noexcept nogil:
    cdef uint64_t length
    ops.c_at += 1
    length = take_varint(ops)
    if ops.damaged or length == 0 or length > MAX_NAME_BYTES or <int64_t> length > ops.c_end - ops.c_at:
        ops.damaged = True
        return
    rename_channel(state, channel, ops.c_at, <uint8_t> length)
    ops.c_at += length


cdef int apply_section(LogState *state, uint32_t number, Ops *ops) noexcept nogil:
    """0 or ENOMEM."""
    cdef CursorState *channel
    while ops.c_at < ops.c_end and not ops.damaged:
        channel = state_channel(state, number)
        if ops.c_at[0] == OP_DROP:
            if channel is not NULL:
                drop_channel(state, channel)
            ops.c_at += 1
            continue
        if channel is NULL:
            channel = add_channel(state, number)
            if channel is NULL:
                return ENOMEM
        if ops.c_at[0] == OP_NAME:
            apply_name(state, channel, ops)
        elif apply_one(state, channel, ops) < 0:
            return ENOMEM
    return 0


cdef void apply_topic(LogState *state, Ops *ops) noexcept nogil:
    cdef int64_t cursor
    while ops.c_at < ops.c_end:
        if ops.c_at[0] != OP_ADVANCE and ops.c_at[0] != OP_RESET:
            ops.damaged = True
            return
        ops.c_at += 1
        cursor = take_offset(ops)
        if ops.damaged:
            return
        ops.last = cursor
        state.topic_cursor = cursor
        state.topic_known = True


cdef int state_apply(LogState *state, const char *c_payload, int64_t length) noexcept nogil:
    cdef int64_t at = 0, bytes
    cdef int number, error
    cdef Ops ops
    while length - at >= SECTION_BYTES:
        number = load_i32(c_payload + at)
        bytes = <uint32_t> load_i32(c_payload + at + 4)
        if bytes > length - at - SECTION_BYTES:
            break
        ops.last = load_i64(c_payload + at + 8)
        ops.c_at = c_payload + at + SECTION_BYTES
        ops.c_end = ops.c_at + bytes
        ops.damaged = False
        at += SECTION_BYTES + bytes
        if number == TOPIC_NUMBER:
            apply_topic(state, &ops)
        elif number != END_NUMBER:
            error = apply_section(state, <uint32_t> number, &ops)
            if error:
                return error
        state.damaged += ops.damaged
    state.damaged += at != length
    return 0
