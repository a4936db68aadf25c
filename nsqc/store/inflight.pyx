"""In-flight messages by id."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

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


cdef int resize(InFlightMap *map, uint32_t slots) noexcept nogil:
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
        return resize(map, FIRST_SLOTS) == 0
    return 2 * map.count <= map.mask or resize(map, 2 * (map.mask + 1)) == 0


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
        resize(map, (map.mask + 1) // 4)


cdef void inflight_free(InFlightMap *map) noexcept nogil:
    free(map.slots)
    map.slots = NULL
    map.count = map.mask = 0
