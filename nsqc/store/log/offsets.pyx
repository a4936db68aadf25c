"""Sets of offsets and of waiting messages. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

cdef enum:
    FIRST_ENTRIES = 4       # of a new block; most sets are small
    MOST_ENTRIES = 256
    FIRST_BLOCKS = 1


# ---------------------------------------------------------------------- entries by key

cdef inline int64_t *entry_at(EntryBlock *block, uint32_t at, size_t size) noexcept nogil:
    return <int64_t *> (block.entries + at * size)


cdef Walk entries_find(Entries *entries, size_t size, int64_t key) noexcept nogil:
    """The first entry whose key is not below this one; behind the last entry if there is none."""
    cdef Walk found
    cdef int64_t low = 0, high = entries.block_count, middle
    cdef uint32_t left, right, half
    cdef EntryBlock *block
    while low < high:               # the first block that begins above key
        middle = (low + high) // 2
        if entries.blocks[middle].low <= key:
            low = middle + 1
        else:
            high = middle
    found.block = low
    found.at = 0
    if low == 0:
        return found
    block = &entries.blocks[low - 1]
    left = 0
    right = block.count
    while left < right:
        half = (left + right) // 2
        if entry_at(block, half, size)[0] < key:
            left = half + 1
        else:
            right = half
    if left < block.count:
        found.block = low - 1
        found.at = left
    return found


cdef inline int64_t *entries_get(Entries *entries, size_t size, Walk *walk) noexcept nogil:
    """The entry at a place; NULL behind the last."""
    if walk.block >= entries.block_count:
        return NULL
    return entry_at(&entries.blocks[walk.block], walk.at, size)


cdef inline int64_t *entries_next(Entries *entries, size_t size, Walk *walk) noexcept nogil:
    """The entry at a place, which moves on."""
    cdef int64_t *entry = entries_get(entries, size, walk)
    if entry is not NULL:
        walk.at += 1
        if walk.at == entries.blocks[walk.block].count:
            walk.block += 1
            walk.at = 0
    return entry


cdef inline bint step_back(Entries *entries, Walk *walk) noexcept nogil:
    """To the entry before; False: there is none."""
    if walk.at > 0:
        walk.at -= 1
        return True
    if walk.block == 0:
        return False
    walk.block -= 1
    walk.at = entries.blocks[walk.block].count - 1
    return True


cdef int resize_block(EntryBlock *block, size_t size, uint32_t room) noexcept nogil:
    cdef char *resized = <char *> realloc(block.entries, room * size)
    if resized is NULL:
        return -1
    block.entries = resized
    block.room = room
    return 0


cdef int new_block(Entries *entries, int64_t at, size_t size, uint32_t room) noexcept nogil:
    """Makes an empty block at this index; 0, or -1: no memory."""
    cdef EntryBlock *resized
    cdef int64_t more
    cdef char *c_entries
    if entries.block_count == entries.block_room:
        more = max(<int64_t> FIRST_BLOCKS, 2 * entries.block_room)
        resized = <EntryBlock *> realloc(entries.blocks, more * sizeof(EntryBlock))
        if resized is NULL:
            return -1
        entries.blocks = resized
        entries.block_room = more
    c_entries = <char *> malloc(room * size)
    if c_entries is NULL:
        return -1
    memmove(&entries.blocks[at + 1], &entries.blocks[at], (entries.block_count - at) * sizeof(EntryBlock))
    entries.block_count += 1
    memset(&entries.blocks[at], 0, sizeof(EntryBlock))
    entries.blocks[at].entries = c_entries
    entries.blocks[at].room = room
    return 0


cdef int split_block(Entries *entries, int64_t at, size_t size) noexcept nogil:
    """Moves the upper half of a full block into a new one behind it."""
    cdef EntryBlock *lower
    cdef EntryBlock *upper
    if new_block(entries, at + 1, size, MOST_ENTRIES) < 0:
        return -1
    lower = &entries.blocks[at]
    upper = lower + 1
    upper.count = lower.count // 2
    lower.count -= upper.count
    memcpy(upper.entries, lower.entries + lower.count * size, upper.count * size)
    upper.low = entry_at(upper, 0, size)[0]
    return 0


cdef int entries_insert(Entries *entries, size_t size, Walk *walk, const void *entry) noexcept nogil:
    """Puts an entry before the one at this place, which then has the new one; 0, or -1: no memory."""
    cdef EntryBlock *block
    cdef char *c_at
    if walk.at == 0 and walk.block > 0:
        # Equally good behind the last of the block before.
        walk.block -= 1
        walk.at = entries.blocks[walk.block].count
    if entries.block_count == 0 or (walk.at == MOST_ENTRIES and walk.block + 1 == entries.block_count):
        # Entries that come in order fill their blocks.
        walk.block = entries.block_count
        walk.at = 0
        if new_block(entries, walk.block, size, FIRST_ENTRIES if walk.block == 0 else MOST_ENTRIES) < 0:
            return -1
    block = &entries.blocks[walk.block]
    if block.count == block.room:
        if block.room < MOST_ENTRIES:
            if resize_block(block, size, min(2 * block.room, <uint32_t> MOST_ENTRIES)) < 0:
                return -1
        else:
            if split_block(entries, walk.block, size) < 0:
                return -1
            block = &entries.blocks[walk.block]
            if walk.at > block.count:
                walk.at -= block.count
                walk.block += 1
                block += 1
    c_at = block.entries + walk.at * size
    memmove(c_at + size, c_at, (block.count - walk.at) * size)
    memcpy(c_at, entry, size)
    block.count += 1
    block.low = entry_at(block, 0, size)[0]
    entries.count += 1
    return 0


cdef void entries_erase(Entries *entries, size_t size, Walk *walk) noexcept nogil:
    """Removes the entry at this place, which then has the one behind it."""
    cdef EntryBlock *block = &entries.blocks[walk.block]
    cdef char *c_at = block.entries + walk.at * size
    entries.count -= 1
    block.count -= 1
    if block.count == 0:
        free(block.entries)
        entries.block_count -= 1
        memmove(block, block + 1, (entries.block_count - walk.block) * sizeof(EntryBlock))
        return
    memmove(c_at, c_at + size, (block.count - walk.at) * size)
    block.low = entry_at(block, 0, size)[0]
    if block.count <= block.room // 4 and block.room > FIRST_ENTRIES:
        resize_block(block, size, block.room // 2)
    if walk.at == block.count:
        walk.block += 1
        walk.at = 0


cdef void entries_free(Entries *entries) noexcept nogil:
    cdef int64_t at
    for at in range(entries.block_count):
        free(entries.blocks[at].entries)
    free(entries.blocks)
    memset(entries, 0, sizeof(Entries))


# ---------------------------------------------------------------------- ranges

cdef inline Range *range_at(OffsetSet *set, Walk *walk) noexcept nogil:
    return <Range *> entries_get(&set.ranges, sizeof(Range), walk)


cdef int offsets_add(OffsetSet *set, int64_t first, int64_t end) noexcept nogil:
    cdef Walk walk = entries_find(&set.ranges, sizeof(Range), first)
    cdef Walk before = walk
    cdef Range *found
    cdef Range added
    if end <= first:
        return 0
    if step_back(&set.ranges, &before):
        found = range_at(set, &before)
        if found.end >= end:
            return 0
        if found.end >= first:
            set.offsets += end - found.end
            found.end = end
            swallow(set, found, &walk)
            return 0
    found = range_at(set, &walk)
    if found is not NULL and found.first <= end:
        # It begins earlier now, still behind the one before.
        set.offsets += found.first - first
        found.first = first
        if walk.at == 0:
            set.ranges.blocks[walk.block].low = first
        if found.end < end:
            set.offsets += end - found.end
            found.end = end
            entries_next(&set.ranges, sizeof(Range), &walk)
            swallow(set, found, &walk)
        return 0
    added.first = first
    added.end = end
    if entries_insert(&set.ranges, sizeof(Range), &walk, &added) < 0:
        return -1
    set.offsets += end - first
    return 0


cdef void swallow(OffsetSet *set, Range *grown, Walk *walk) noexcept nogil:
    """Merges the ranges from this place on with a range before them that has grown; it lies before what moves."""
    cdef Range *found = range_at(set, walk)
    cdef int64_t end = grown.end
    cdef Walk before
    while found is not NULL and found.first <= end:
        set.offsets -= min(found.end, end) - found.first
        end = max(found.end, end)
        entries_erase(&set.ranges, sizeof(Range), walk)
        found = range_at(set, walk)
    # Erasing may have moved its block.
    before = walk[0]
    step_back(&set.ranges, &before)
    range_at(set, &before).end = end


cdef int offsets_remove(OffsetSet *set, int64_t first, int64_t end) noexcept nogil:
    cdef Walk walk = entries_find(&set.ranges, sizeof(Range), first)
    cdef Walk before = walk
    cdef Range *found
    cdef Range rest
    if end <= first:
        return 0
    if step_back(&set.ranges, &before):
        found = range_at(set, &before)
        if found.end > end:
            rest.first = end
            rest.end = found.end
            if entries_insert(&set.ranges, sizeof(Range), &walk, &rest) < 0:
                return -1
            # Inserting may have moved the block.
            step_back(&set.ranges, &walk)
            range_at(set, &walk).end = first
            set.offsets -= end - first
            return 0
        if found.end > first:
            set.offsets -= found.end - first
            found.end = first
    found = range_at(set, &walk)
    while found is not NULL and found.first < end:
        if found.end > end:
            set.offsets -= end - found.first
            found.first = end
            if walk.at == 0:
                set.ranges.blocks[walk.block].low = end
            break
        set.offsets -= found.end - found.first
        entries_erase(&set.ranges, sizeof(Range), &walk)
        found = range_at(set, &walk)
    return 0


cdef Walk offsets_from(OffsetSet *set, int64_t offset) noexcept nogil:
    cdef Walk walk = entries_find(&set.ranges, sizeof(Range), offset)
    cdef Walk before = walk
    if step_back(&set.ranges, &before) and range_at(set, &before).end > offset:
        return before
    return walk


cdef bint offsets_have(OffsetSet *set, int64_t offset) noexcept nogil:
    cdef Walk walk = offsets_from(set, offset)
    cdef Range *found = range_at(set, &walk)
    return found is not NULL and found.first <= offset


cdef Range *offsets_next(OffsetSet *set, Walk *walk) noexcept nogil:
    return <Range *> entries_next(&set.ranges, sizeof(Range), walk)


cdef void offsets_free(OffsetSet *set) noexcept nogil:
    entries_free(&set.ranges)
    set.offsets = 0


# ---------------------------------------------------------------------- waiting messages

cdef Walk waiting_from(WaitingSet *set, int64_t offset) noexcept nogil:
    return entries_find(&set.entries, sizeof(Waiting), offset)


cdef Waiting *waiting_find(WaitingSet *set, int64_t offset) noexcept nogil:
    cdef Walk walk = waiting_from(set, offset)
    cdef Waiting *found = <Waiting *> entries_get(&set.entries, sizeof(Waiting), &walk)
    return found if found is not NULL and found.offset == offset else NULL


cdef int waiting_put(WaitingSet *set, Waiting *entry) noexcept nogil:
    cdef Walk walk = waiting_from(set, entry.offset)
    cdef Waiting *found = <Waiting *> entries_get(&set.entries, sizeof(Waiting), &walk)
    if found is not NULL and found.offset == entry.offset:
        found[0] = entry[0]
        return 0
    return entries_insert(&set.entries, sizeof(Waiting), &walk, entry)


cdef void waiting_remove(WaitingSet *set, int64_t first, int64_t end) noexcept nogil:
    cdef Walk walk
    cdef Waiting *found
    if set.entries.count == 0:
        return
    walk = waiting_from(set, first)
    found = <Waiting *> entries_get(&set.entries, sizeof(Waiting), &walk)
    while found is not NULL and found.offset < end:
        entries_erase(&set.entries, sizeof(Waiting), &walk)
        found = <Waiting *> entries_get(&set.entries, sizeof(Waiting), &walk)


cdef Waiting *waiting_next(WaitingSet *set, Walk *walk) noexcept nogil:
    return <Waiting *> entries_next(&set.entries, sizeof(Waiting), walk)


cdef void waiting_free(WaitingSet *set) noexcept nogil:
    entries_free(&set.entries)
