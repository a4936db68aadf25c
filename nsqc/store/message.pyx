"""Messages, their ids, and what holds them: FIFO, places on disk, deliveries, heap, in-flight table. See the .pxd."""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from nsqc.store.memory cimport CHECKS, broken, slab_alloc, slab_free
from nsqc.wire.hton cimport store_i64


# ====================================================================== message
# Allocates and reference-counts messages. Knows no queues, no disk and no wire format.

cdef extern from *:
    """
    #include <stddef.h>
    static long nsqc_messages_alive = 0;
    #if NSQC_DEBUG
    #define NSQC_COUNT_MESSAGE(n) (nsqc_messages_alive += (n))
    #else
    #define NSQC_COUNT_MESSAGE(n) ((void) 0)
    #endif
    """
    long nsqc_messages_alive
    void NSQC_COUNT_MESSAGE(long) nogil

cdef enum:
    HEAD_BYTES = 32         # before the body; checked here

if <size_t> &(<Message *> NULL).body[0] != HEAD_BYTES:
    raise ImportError("Message has an unexpected layout on this platform")


cdef Message *message_new(const char *c_id, int64_t timestamp_ns, const char *c_body, uint32_t size) noexcept nogil:
    cdef Message *message = <Message *> slab_alloc(HEAD_BYTES + <size_t> size)
    if message is NULL:
        return NULL
    message.refs = 1
    message.size = size
    message.timestamp_ns = timestamp_ns
    memcpy(message.id, c_id, 16)
    if c_body is not NULL:
        memcpy(message.body, c_body, size)
    NSQC_COUNT_MESSAGE(1)
    return message


cdef void message_ref(Message *message) noexcept nogil:
    message.refs += 1


cdef void message_unref(Message *message) noexcept nogil:
    message.refs -= 1
    if message.refs == 0:
        NSQC_COUNT_MESSAGE(-1)
        slab_free(message, HEAD_BYTES + <size_t> message.size)


cdef int64_t message_alive() noexcept nogil:
    """Live messages, for leak checks in the debug build; always 0 in a release build."""
    return nsqc_messages_alive


def messages_alive() -> int:
    """Live messages; always 0 in a release build, which does not count them."""
    return message_alive()


# ====================================================================== guid
# Message ids in increasing order, across restarts and when the clock is set back.
#
# If the 4096 ids of a unit are used up or the clock has been set back, nsqd waits for the clock. This factory borrows
# the next unit: it runs ahead of the clock until the clock catches up.
#
# A restart continues above a bound that is on disk (broker/nsqc_dat.py), so no id exceeds that bound. The clock may,
# after an idle time or a step: then ids stay below it until the bound is raised.

cdef enum:
    SEQUENCE_BITS = 12
    NODE_BITS = 10
    LAST_SEQUENCE = 4095
    UNIT_BITS = 20          # a unit is 2^20 ns

cdef int64_t EPOCH_UNITS = 1288834974288


cdef inline uint64_t hex_of(uint64_t number) noexcept nogil:
    """The 8 digits of a number below 2^32, most significant first; computed at once, since each message needs two."""
    cdef uint64_t letters
    number = (number | number << 16) & <uint64_t> 0x0000FFFF0000FFFF
    number = (number | number << 8) & <uint64_t> 0x00FF00FF00FF00FF
    number = (number | number << 4) & <uint64_t> 0x0F0F0F0F0F0F0F0F
    letters = (number + <uint64_t> 0x0606060606060606) >> 4 & <uint64_t> 0x0101010101010101
    return number + <uint64_t> 0x3030303030303030 + letters * (c'a' - c'0' - 10)


cdef void guid_write(int64_t id, char *c_to) noexcept nogil:
    store_i64(c_to, <int64_t> hex_of(<uint64_t> id >> 32))
    store_i64(c_to + 8, <int64_t> hex_of(<uint32_t> id))


cdef void guid_write_range(int64_t first, int64_t count, char *c_to) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        guid_write(guid_after(first, index), c_to + 16 * index)


@cython.final
cdef class GuidFactory:
    """Creates the ids of one daemon; node_id is from 0 to 1023."""

    def __init__(self):
        raise TypeError("GuidFactory objects are made by GuidFactory.new()")

    @staticmethod
    cdef GuidFactory new(int64_t node_id, int64_t first_unit):
        cdef GuidFactory self = GuidFactory.__new__(GuidFactory)
        self.node_bits = node_id << SEQUENCE_BITS
        self.unit = first_unit
        self.sequence = LAST_SEQUENCE
        self.bound = self.follow_to = INT64_MAX
        self.reason = ""
        return self

    @staticmethod
    def make(node_id: int, first_unit: int = 0) -> GuidFactory:
        """A factory whose ids start above first_unit, in units of 2^20 ns since 1970, without a bound."""
        return GuidFactory.new(node_id, first_unit)

    def set_bound(self, int64_t bound, int64_t follow_to):
        """No id may exceed the unit `bound`. Ids follow the clock up to follow_to: the units between are for ids that
        are created before the bound is raised."""
        self.bound, self.follow_to = bound, follow_to

    @property
    def is_low(self) -> bool:
        """Whether the bound has to be raised."""
        return self.unit >= self.follow_to

    cdef void next(self, int64_t wall_ns, char *c_to) noexcept:
        cdef int64_t unit = min(wall_ns >> UNIT_BITS, self.follow_to)
        cdef int64_t number
        if unit > self.unit:
            self.unit = unit
            self.sequence = 0
        elif self.sequence < LAST_SEQUENCE:
            self.sequence += 1
        else:
            self.unit += 1
            self.sequence = 0
        number = (self.unit - EPOCH_UNITS) << (SEQUENCE_BITS + NODE_BITS) | self.node_bits | self.sequence
        guid_write(number, c_to)

    cdef bytes last(self):
        cdef char c_id[16]
        guid_write((self.unit - EPOCH_UNITS) << (SEQUENCE_BITS + NODE_BITS) | self.node_bits | self.sequence, c_id)
        return c_id[:16]

    cdef int64_t take(self, int64_t count, int64_t wall_ns) noexcept:
        cdef int64_t next_ = 1 + max(self.unit << SEQUENCE_BITS | self.sequence,
                                     (min(wall_ns >> UNIT_BITS, self.follow_to) << SEQUENCE_BITS) - 1)
        cdef int64_t last = next_ + count - 1
        self.unit = last >> SEQUENCE_BITS
        self.sequence = last & LAST_SEQUENCE
        return (((next_ >> SEQUENCE_BITS) - EPOCH_UNITS) << (SEQUENCE_BITS + NODE_BITS) | self.node_bits
                | next_ & LAST_SEQUENCE)

    @property
    def reached(self) -> int:
        """The unit of the last id, in 2^20 ns since 1970."""
        return self.unit


# ====================================================================== fifo

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *address) noexcept nogil

cdef enum:
    BLOCK_SLOTS = 511
    OWN_ENTRY = 1
    AHEAD = 3               # messages prefetched into the cache
    LINE_BYTES = 64
    LOOK_BLOCKS = 64        # most blocks walked in one call
    MAX_SPARE_BLOCKS = 64   # of all queues; reused by small queues that come and go

cdef FifoBlock *c_spare_block = NULL
cdef int spare_blocks = 0


cdef FifoBlock *block_new() noexcept nogil:
    global c_spare_block, spare_blocks
    cdef FifoBlock *block = c_spare_block
    if block is not NULL:
        c_spare_block = block.next
        spare_blocks -= 1
    else:
        block = <FifoBlock *> malloc(sizeof(FifoBlock))
        if block is NULL:
            return NULL
    block.next = NULL
    return block


cdef void block_free(FifoBlock *block) noexcept nogil:
    global c_spare_block, spare_blocks
    if spare_blocks < MAX_SPARE_BLOCKS:
        block.next = c_spare_block
        c_spare_block = block
        spare_blocks += 1
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


# ====================================================================== unacked
# Tracks the unfinished records of a disk queue, and which files to keep for them.

cdef enum:
    MAX_SPARE_PLACES = 16384       # 56 bytes each; every message read from disk needs one for a while

cdef Place *c_spare_place = NULL
cdef int64_t spare_places = 0
cdef int64_t places = 0


cdef Place *place_new() noexcept nogil:
    global c_spare_place, spare_places, places
    cdef Place *place = c_spare_place
    if place is not NULL:
        c_spare_place = place.newer
        spare_places -= 1
    else:
        place = <Place *> malloc(sizeof(Place))
        if place is NULL:
            return NULL
    places += 1
    return place


cdef void place_free(Place *place) noexcept nogil:
    global c_spare_place, spare_places, places
    places -= 1
    if CHECKS:
        place.serial = -1
    if spare_places < MAX_SPARE_PLACES:
        place.newer = c_spare_place
        c_spare_place = place
        spare_places += 1
    else:
        free(place)


cdef void unlink(Unacked *unacked, Place *place) noexcept nogil:
    place.linked = False
    if place.older is NULL:
        unacked.oldest = place.newer
    else:
        place.older.newer = place.newer
    if place.newer is NULL:
        unacked.newest = place.older
    else:
        place.newer.older = place.older


cdef Place *unacked_add(Unacked *unacked, int64_t number, int64_t at, int64_t length) noexcept nogil:
    cdef Place *place = place_new()
    if place is NULL:
        return NULL
    while unacked.oldest is not NULL and unacked.bytes - unacked.oldest.before >= MOST_BYTES:
        unlink(unacked, unacked.oldest)
    place.number = number
    place.at = at
    place.serial = unacked.serial
    place.before = unacked.bytes
    place.linked = True
    place.newer = NULL
    place.older = unacked.newest
    if unacked.newest is NULL:
        unacked.oldest = place
    else:
        unacked.newest.newer = place
    unacked.newest = place
    unacked.serial += 1
    unacked.bytes += length
    return place


cdef bint unacked_done(Unacked *unacked, Place *place) noexcept nogil:
    cdef bint oldest = unacked.oldest is place
    # RULE: a place is done exactly once. Twice, and two places would share its memory. Never, and files are kept
    # needlessly; the count of places reveals that.
    if CHECKS and place.serial < 0:
        broken("a place is done twice")
        return False
    if place.linked:
        unlink(unacked, place)
    place_free(place)
    return oldest


cdef int64_t unacked_count(Unacked *unacked) noexcept nogil:
    return 0 if unacked.oldest is NULL else unacked.serial - unacked.oldest.serial


cdef void unacked_drop(Unacked *unacked) noexcept nogil:
    while unacked.oldest is not NULL:
        unlink(unacked, unacked.oldest)


def places_alive() -> int:
    """Existing places, in all queues."""
    return places


# ====================================================================== delivery
# Deliveries and their freelist: each message needs one briefly, so their memory is reused.

cdef enum:
    MAX_SPARE_DELIVERIES = 16384       # 64 bytes each; more are returned to the allocator

# The first word of a spare delivery points to the next one.
cdef Delivery *c_spare_delivery = NULL
cdef int64_t spare_deliveries = 0
cdef int64_t deliveries = 0


cdef bint delivery_reserve() noexcept nogil:
    global c_spare_delivery, spare_deliveries
    cdef Delivery *delivery
    if c_spare_delivery is not NULL:
        return True
    delivery = <Delivery *> malloc(sizeof(Delivery))
    if delivery is NULL:
        return False
    delivery.message = NULL
    c_spare_delivery = delivery
    spare_deliveries = 1
    return True


cdef Delivery *delivery_new(Message *message, uint16_t attempts) noexcept nogil:
    global c_spare_delivery, spare_deliveries, deliveries
    cdef Delivery *delivery = c_spare_delivery
    if delivery is not NULL:
        c_spare_delivery = <Delivery *> delivery.message
        spare_deliveries -= 1
    else:
        delivery = <Delivery *> malloc(sizeof(Delivery))
        if delivery is NULL:
            return NULL
    deliveries += 1
    delivery.message = message
    delivery.attempts = attempts
    delivery.offset = -1
    delivery.owner = 0
    delivery.place = NULL
    return delivery


cdef Message *delivery_take(Delivery *delivery) noexcept nogil:
    global c_spare_delivery, spare_deliveries, deliveries
    cdef Message *message = delivery.message
    deliveries -= 1
    if spare_deliveries < MAX_SPARE_DELIVERIES:
        delivery.message = <Message *> c_spare_delivery
        c_spare_delivery = delivery
        spare_deliveries += 1
    else:
        free(delivery)
    return message


cdef void delivery_free(Delivery *delivery) noexcept nogil:
    message_unref(delivery_take(delivery))


cdef int64_t delivery_alive() noexcept nogil:
    return deliveries


def deliveries_alive() -> int:
    """Live deliveries: messages in flight or deferred, in all channels."""
    return delivery_alive()


# ====================================================================== heap

cdef enum:
    FIRST_ROOM = 32
    KEPT_ROOM = 4096        # 64 KiB; smaller heaps are not shrunk, since they would grow again


cdef inline void put(Heap *heap, uint32_t slot, HeapItem item) noexcept nogil:
    heap.items[slot] = item
    item.delivery.slot = slot


cdef void sift_up(Heap *heap, uint32_t slot, HeapItem item) noexcept nogil:
    cdef uint32_t parent
    while slot:
        parent = (slot - 1) >> 1
        if heap.items[parent].deadline_ns <= item.deadline_ns:
            break
        put(heap, slot, heap.items[parent])
        slot = parent
    put(heap, slot, item)


cdef void sift_down(Heap *heap, uint32_t slot, HeapItem item) noexcept nogil:
    cdef uint32_t child
    while True:
        child = 2 * slot + 1
        if child >= heap.count:
            break
        if child + 1 < heap.count and heap.items[child + 1].deadline_ns < heap.items[child].deadline_ns:
            child += 1
        if heap.items[child].deadline_ns >= item.deadline_ns:
            break
        put(heap, slot, heap.items[child])
        slot = child
    put(heap, slot, item)


cdef void settle(Heap *heap, uint32_t slot, HeapItem item) noexcept nogil:
    if slot and heap.items[(slot - 1) >> 1].deadline_ns > item.deadline_ns:
        sift_up(heap, slot, item)
    else:
        sift_down(heap, slot, item)


cdef int heap_resize(Heap *heap, uint32_t room) noexcept nogil:
    cdef HeapItem *c_items = <HeapItem *> realloc(heap.items, room * sizeof(HeapItem))
    if c_items is NULL:
        return -1
    heap.items = c_items
    heap.room = room
    return 0


cdef bint heap_reserve(Heap *heap) noexcept nogil:
    return heap.count < heap.room or heap_resize(heap, max(FIRST_ROOM, 2 * heap.room)) == 0


cdef int heap_push(Heap *heap, Delivery *delivery) noexcept nogil:
    cdef HeapItem item
    if not heap_reserve(heap):
        return -1
    item.deadline_ns = delivery.deadline_ns
    item.delivery = delivery
    heap.count += 1
    sift_up(heap, heap.count - 1, item)
    return 0


cdef void heap_remove(Heap *heap, Delivery *delivery) noexcept nogil:
    cdef uint32_t slot = delivery.slot
    heap.count -= 1
    if slot < heap.count:
        settle(heap, slot, heap.items[heap.count])
    if heap.room > KEPT_ROOM and heap.count < heap.room // 8:
        heap_resize(heap, heap.room // 4)


cdef void heap_moved(Heap *heap, Delivery *delivery) noexcept nogil:
    cdef HeapItem item
    item.deadline_ns = delivery.deadline_ns
    item.delivery = delivery
    settle(heap, delivery.slot, item)


cdef int64_t heap_least(const Heap *heap, int64_t least) noexcept nogil:
    cdef uint32_t index
    for index in range(heap.count):
        if heap.items[index].delivery.offset >= 0:
            least = min(least, heap.items[index].delivery.offset)
    return least


cdef void heap_drop_logged(Heap *heap) noexcept:
    cdef Delivery *delivery
    cdef uint32_t at = heap.count
    # Backwards: the item that takes a removed one's place is either already checked or comes later.
    while at:
        at = min(at, heap.count)
        if at == 0:
            return
        delivery = heap.items[at - 1].delivery
        if delivery.offset < 0:
            at -= 1
            continue
        heap_remove(heap, delivery)
        delivery_free(delivery)


cdef void heap_free(Heap *heap) noexcept nogil:
    free(heap.items)
    heap.items = NULL
    heap.count = heap.room = 0


# ====================================================================== inflight

cdef enum:
    FIRST_SLOTS = 64
    KEPT_SLOTS = 16384      # 256 KiB; smaller maps are not shrunk: they would grow again at every few thousand FINs
    ID_BYTES = 16
    CACHED_SLOTS = 2048     # a smaller map is in the cache anyway
    # How many ids ahead a slot, its delivery and its message are prefetched: each depends on the previous one.
    SLOT_AHEAD = 12
    DELIVERY_AHEAD = 8
    MESSAGE_AHEAD = 4

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *address) noexcept nogil


cdef inline uint64_t hash_id(const char *c_id) noexcept nogil:
    """Eight consecutive ids get eight consecutive slots: messages are sent and finished roughly in the order of their
    ids, and a slot that is not in the cache costs more than the rest of a delivery."""
    cdef uint64_t high, low, mixed, digit = <unsigned char> c_id[15]
    digit = (digit & 15) + 9 * (digit >> 6)     # of a hexadecimal number; other ids are merely spread less well
    memcpy(&high, c_id, 8)
    memcpy(&low, c_id + 7, 8)                   # without the last digit
    mixed = (high * <uint64_t> 0x9E3779B97F4A7C15 ^ low) + (digit >> 3)
    mixed = (mixed ^ (mixed >> 32)) * <uint64_t> 0xC2B2AE3D27D4EB4F
    mixed = (mixed ^ (mixed >> 29)) * <uint64_t> 0x9E3779B97F4A7C15
    return (mixed ^ (mixed >> 32)) & ~<uint64_t> 7 | (digit & 7)


cdef inline void place(InFlightMap *map, IdSlot item) noexcept nogil:
    cdef uint32_t at = <uint32_t> item.hash & map.mask
    while map.slots[at].delivery is not NULL:
        at = (at + 1) & map.mask
    map.slots[at] = item


cdef int inflight_resize(InFlightMap *map, uint32_t slots) noexcept nogil:
    cdef InFlightMap grown
    cdef uint32_t at
    grown.slots = <IdSlot *> calloc(slots, sizeof(IdSlot))
    if grown.slots is NULL:
        return -1
    grown.mask = slots - 1
    grown.count = map.count
    if map.slots is not NULL:
        for at in range(map.mask + 1):
            if map.slots[at].delivery is not NULL:
                place(&grown, map.slots[at])
        free(map.slots)
    map[0] = grown
    return 0


cdef bint inflight_reserve(InFlightMap *map) noexcept nogil:
    if map.slots is NULL:
        return inflight_resize(map, FIRST_SLOTS) == 0
    return 2 * map.count <= map.mask or inflight_resize(map, 2 * (map.mask + 1)) == 0


cdef int inflight_add(InFlightMap *map, Delivery *delivery) noexcept nogil:
    cdef IdSlot item
    if not inflight_reserve(map):
        return -1
    item.hash = hash_id(delivery.message.id)
    item.delivery = delivery
    place(map, item)
    map.count += 1
    return 0


cdef Delivery *inflight_find(InFlightMap *map, const char *c_id, int64_t owner) noexcept nogil:
    cdef uint64_t hash_
    cdef uint32_t at
    cdef Delivery *match = NULL
    if map.count == 0:
        return NULL
    hash_ = hash_id(c_id)
    at = <uint32_t> hash_ & map.mask
    while map.slots[at].delivery is not NULL:
        if map.slots[at].hash == hash_ and memcmp(map.slots[at].delivery.message.id, c_id, 16) == 0:
            match = map.slots[at].delivery
            if match.owner == owner:
                break
        at = (at + 1) & map.mask
    return match


cdef void inflight_expect(InFlightMap *map, const char *c_id, const char *c_end, Py_ssize_t stride) noexcept nogil:
    cdef uint64_t hash_
    cdef IdSlot *slot
    if map.mask < CACHED_SLOTS:
        return
    if c_end - c_id >= SLOT_AHEAD * stride + ID_BYTES:
        prefetch(&map.slots[<uint32_t> hash_id(c_id + SLOT_AHEAD * stride) & map.mask])
    if c_end - c_id >= DELIVERY_AHEAD * stride + ID_BYTES:
        hash_ = hash_id(c_id + DELIVERY_AHEAD * stride)
        slot = &map.slots[<uint32_t> hash_ & map.mask]
        if slot.delivery is not NULL:
            prefetch(slot.delivery)
    if c_end - c_id >= MESSAGE_AHEAD * stride + ID_BYTES:
        hash_ = hash_id(c_id + MESSAGE_AHEAD * stride)
        slot = &map.slots[<uint32_t> hash_ & map.mask]
        if slot.delivery is not NULL and slot.hash == hash_:
            prefetch(slot.delivery.message)


cdef void inflight_remove(InFlightMap *map, Delivery *delivery) noexcept nogil:
    """Moves entries into the gap that probing would otherwise miss."""
    cdef uint32_t at = <uint32_t> hash_id(delivery.message.id) & map.mask
    cdef uint32_t gap, home
    while map.slots[at].delivery is not delivery:
        at = (at + 1) & map.mask
    gap = at
    while True:
        at = (at + 1) & map.mask
        if map.slots[at].delivery is NULL:
            break
        home = <uint32_t> map.slots[at].hash & map.mask
        if ((at - home) & map.mask) >= ((at - gap) & map.mask):
            map.slots[gap] = map.slots[at]
            gap = at
    map.slots[gap].delivery = NULL
    map.count -= 1
    if map.mask > KEPT_SLOTS and map.count < map.mask // 16:
        inflight_resize(map, (map.mask + 1) // 4)


cdef void inflight_free(InFlightMap *map) noexcept nogil:
    free(map.slots)
    map.slots = NULL
    map.count = map.mask = 0
