"""The memory queue of a topic or channel."""

from libc.stdint cimport int64_t, uint32_t, uintptr_t
from libc.stdlib cimport free, malloc

from nsqc.store.message cimport message_unref

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *address) noexcept nogil

cdef enum:
    BLOCK_SLOTS = 511
    OWN_ENTRY = 1
    AHEAD = 3               # messages prefetched into the cache
    LINE_BYTES = 64
    LOOK_BLOCKS = 64        # most blocks walked in one call
    MAX_SPARE_BLOCKS = 64   # of all queues; reused by small queues that come and go

cdef FifoBlock *c_spare = NULL
cdef int spares = 0


cdef FifoBlock *block_new() noexcept nogil:
    global c_spare, spares
    cdef FifoBlock *block = c_spare
    if block is not NULL:
        c_spare = block.next
        spares -= 1
    else:
        block = <FifoBlock *> malloc(sizeof(FifoBlock))
        if block is NULL:
            return NULL
    block.next = NULL
    return block


cdef void block_free(FifoBlock *block) noexcept nogil:
    global c_spare, spares
    if spares < MAX_SPARE_BLOCKS:
        block.next = c_spare
        c_spare = block
        spares += 1
    else:
        free(block)


cdef int fifo_push(Fifo *fifo, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept nogil:
    cdef FifoBlock *block = fifo.tail
    cdef Entry *entry = NULL
    if attempts or defer_ms:
        entry = <Entry *> malloc(sizeof(Entry))
        if entry is NULL:
            return -1
        entry.message = message
        entry.attempts = attempts
        entry.defer_ms = defer_ms
    if block is NULL or fifo.end == BLOCK_SLOTS:
        block = block_new()
        if block is NULL:
            free(entry)
            return -1
        if fifo.tail is NULL:
            fifo.head = block
            fifo.first = 0
        else:
            fifo.tail.next = block
        fifo.tail = block
        fifo.end = 0
    block.slots[fifo.end] = <uintptr_t> message if entry is NULL else <uintptr_t> entry | OWN_ENTRY
    fifo.end += 1
    fifo.count += 1
    fifo.bytes += message.size
    return 0


cdef Message *fifo_oldest(Fifo *fifo, uint32_t *attempts) noexcept nogil:
    cdef uintptr_t slot
    if fifo.count == 0:
        return NULL
    slot = fifo.head.slots[fifo.first]
    attempts[0] = (<Entry *> (slot ^ OWN_ENTRY)).attempts if slot & OWN_ENTRY else 0
    return (<Entry *> (slot ^ OWN_ENTRY)).message if slot & OWN_ENTRY else <Message *> slot


cdef bint fifo_pop(Fifo *fifo, Entry *entry) noexcept nogil:
    cdef FifoBlock *block = fifo.head
    cdef uintptr_t slot
    if fifo.count == 0:
        return False
    # A waiting message has long left the cache. A miss would take as long as all other work on it.
    if fifo.first + AHEAD < (fifo.end if block == fifo.tail else <uint32_t> BLOCK_SLOTS):
        slot = block.slots[fifo.first + AHEAD]
        prefetch(<const void *> slot)
        prefetch(<const void *> (slot + LINE_BYTES))
        prefetch(<const void *> (slot + 2 * LINE_BYTES))
    slot = block.slots[fifo.first]
    if slot & OWN_ENTRY:
        slot ^= OWN_ENTRY
        entry[0] = (<Entry *> slot)[0]
        free(<void *> slot)
    else:
        entry.message = <Message *> slot
        entry.attempts = entry.defer_ms = 0
    fifo.first += 1
    fifo.count -= 1
    fifo.bytes -= entry.message.size
    if fifo.count == 0:
        block_free(block)
        fifo.head = fifo.tail = NULL
        fifo.passed += fifo.first
        fifo.first = 0
    elif fifo.first == BLOCK_SLOTS:
        fifo.passed += BLOCK_SLOTS
        fifo.head = block.next
        fifo.first = 0
        block_free(block)
    return True


cdef int fifo_look(Fifo *fifo, FifoWalk *walk, Entry *entry) noexcept nogil:
    cdef int64_t oldest = fifo.passed + fifo.first
    cdef uintptr_t slot
    cdef int steps = LOOK_BLOCKS
    walk.at = max(walk.at, oldest)
    if walk.at >= oldest + fifo.count:
        return 0
    if walk.block is NULL or walk.begin < fifo.passed:
        walk.block = fifo.head
        walk.begin = fifo.passed
    while walk.at - walk.begin >= BLOCK_SLOTS:
        if steps == 0:
            return -1
        walk.block = walk.block.next
        walk.begin += BLOCK_SLOTS
        steps -= 1
    slot = walk.block.slots[walk.at - walk.begin]
    if slot & OWN_ENTRY:
        entry[0] = (<Entry *> (slot ^ OWN_ENTRY))[0]
    else:
        entry.message = <Message *> slot
        entry.attempts = entry.defer_ms = 0
    return 1


cdef void fifo_free(Fifo *fifo) noexcept nogil:
    cdef Entry entry
    while fifo_pop(fifo, &entry):
        message_unref(entry.message)
