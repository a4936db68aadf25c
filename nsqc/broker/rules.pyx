"""Delivery rules of a channel as C values, and the queues that only they need. See the .pxd."""

from libc.math cimport pow
from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memmove

from nsqc.store.message cimport Delivery, Heap, delivery_free, heap_moved, heap_push, heap_remove, heap_reserve


# ====================================================================== rules

cdef double NS = 1e9
cdef double MOST_NS = 1e12      # with the largest burst as a factor and a time added, this fits 64 bits
cdef int64_t LEAST_BURST_NS = 10000000      # timers have steps of a millisecond, and the loop has other work


cdef ChannelRules *rules_new(object rule, bint can_die) except? NULL:
    cdef ChannelRules *rules
    cdef double interval_ns
    if rule is None or rule.is_off:
        return NULL
    rules = <ChannelRules *> calloc(1, sizeof(ChannelRules))
    if rules is NULL:
        raise MemoryError
    rules.requeue_delay_ns = rule.requeue_delay
    rules.requeue_max_ns = rule.requeue_max
    rules.requeue_backoff = rule.requeue_backoff
    rules.requeue_on_disconnect = rule.requeue_on_disconnect
    rules.max_attempts = rule.max_attempts if can_die else 0
    rules.ordered = rule.ordered
    rules.max_in_flight = 1 if rule.ordered else rule.max_in_flight
    if rule.rate:
        interval_ns = min(max(NS / <double> rule.rate, 1.0), MOST_NS)
        rules.interval_ns = <int64_t> interval_ns
        rules.burst_ns = max(<int64_t> (rule.rate_burst - 1) * rules.interval_ns, LEAST_BURST_NS)
    # Without a dead-letter topic, messages for it stay: none is dropped against the rule.
    rules.expired_die = can_die and rule.expired == "dead-letter"
    rules.message_ttl_ns = rule.message_ttl if can_die or rule.expired == "drop" else 0
    rules.max_depth = rule.max_depth
    rules.max_bytes = rule.max_bytes
    rules.overflow = overflow_of(rule, can_die)
    rules.paces = rules.max_in_flight > 0 or rules.interval_ns > 0
    rules.dies = rules.max_attempts > 0 or rules.expired_die or rules.overflow == OVERFLOW_DIE
    rules.trims = (rules.max_depth > 0 or rules.max_bytes > 0) and rules.overflow != OVERFLOW_REFUSE
    rules.watches = rules.trims or rules.message_ttl_ns > 0
    return rules


cdef Overflow overflow_of(object rule, bint can_die) except *:
    if rule.overflow == "drop-oldest":
        return OVERFLOW_DROP
    return OVERFLOW_DIE if rule.overflow == "dead-letter" and can_die else OVERFLOW_REFUSE


cdef int64_t rules_delay(const ChannelRules *rules, uint16_t attempts) noexcept nogil:
    cdef double delay_ns
    if rules.requeue_delay_ns == 0:
        return 0
    delay_ns = <double> rules.requeue_delay_ns * pow(rules.requeue_backoff, max(<int> attempts - 1, 0))
    # Compared as doubles: large powers overflow an integer.
    return <int64_t> delay_ns if delay_ns < <double> rules.requeue_max_ns else rules.requeue_max_ns


# ====================================================================== again

cdef enum:
    FIRST_SLOTS = 32


cdef bint again_reserve(Again *again) noexcept nogil:
    return heap_reserve(&again.heap) and (again.end - again.first < again.room or renew(again))


cdef bint renew(Again *again) noexcept nogil:
    """Enlarges the ring of slots, or only removes the empty ones."""
    cdef int64_t room = FIRST_SLOTS, at, end = 0
    cdef AgainSlot *slots
    cdef AgainSlot *slot
    while room < 2 * <int64_t> again.heap.count:
        room *= 2
    slots = <AgainSlot *> malloc(<size_t> room * sizeof(AgainSlot))
    if slots is NULL:
        return False
    for at in range(again.first, again.end):
        slot = &again.slots[at & (again.room - 1)]
        if slot.delivery is not NULL:
            slots[end] = slot[0]
            slot.delivery.delivered_ns = end
            end += 1
    free(again.slots)
    again.slots = slots
    again.room = room
    again.first = 0
    again.end = end
    return True


cdef void again_add(Again *again, Delivery *delivery, int64_t after) noexcept nogil:
    cdef AgainSlot *slot = &again.slots[again.end & (again.room - 1)]
    slot.delivery = delivery
    slot.after = after
    slot.number = again.came
    again.came += 1
    delivery.owner = 0
    delivery.delivered_ns = again.end
    delivery.deadline_ns = delivery.message.timestamp_ns
    again.end += 1
    heap_push(&again.heap, delivery)


cdef AgainSlot *again_first(Again *again) noexcept nogil:
    if again.heap.count == 0:
        return NULL
    while again.slots[again.first & (again.room - 1)].delivery is NULL:
        again.first += 1
    return &again.slots[again.first & (again.room - 1)]


cdef void again_remove(Again *again, Delivery *delivery) noexcept nogil:
    again.slots[delivery.delivered_ns & (again.room - 1)].delivery = NULL
    heap_remove(&again.heap, delivery)
    if again.heap.count == 0:
        again.first = again.end = 0
        if again.room > FIRST_SLOTS:
            again_forget(again)


cdef void again_drop_logged(Again *again) noexcept:
    cdef Delivery *delivery
    cdef int64_t at, end = again.end
    for at in range(again.first, end):
        if again.heap.count == 0:
            return
        delivery = again.slots[at & (again.room - 1)].delivery
        if delivery is not NULL and delivery.offset >= 0:
            again_remove(again, delivery)
            delivery_free(delivery)


cdef void again_forget(Again *again) noexcept nogil:
    free(again.slots)
    again.slots = NULL
    again.room = again.first = again.end = 0


# ====================================================================== lost

cdef enum:
    FIRST_OWNERS = 8
    PASSES = 4


cdef uint32_t position(const Lost *lost, int64_t owner) noexcept nogil:
    """The index of the first id at or above owner."""
    cdef uint32_t low = 0, high = lost.count, middle
    while low < high:
        middle = (low + high) >> 1
        if lost.owners[middle] < owner:
            low = middle + 1
        else:
            high = middle
    return low


cdef void lost_add(Lost *lost, int64_t owner, int64_t in_flight) noexcept nogil:
    cdef uint32_t at, room
    cdef int64_t *c_owners
    if in_flight <= 0:
        return
    if lost.count == lost.room:
        room = max(FIRST_OWNERS, 2 * lost.room)
        c_owners = <int64_t *> realloc(lost.owners, room * sizeof(int64_t))
        if c_owners is NULL:
            return
        lost.owners = c_owners
        lost.room = room
    at = position(lost, owner)
    memmove(&lost.owners[at + 1], &lost.owners[at], (lost.count - at) * sizeof(int64_t))
    lost.owners[at] = owner
    lost.count += 1
    lost.left += in_flight


cdef bint lost_has(const Lost *lost, int64_t owner) noexcept nogil:
    cdef uint32_t at = position(lost, owner)
    return at < lost.count and lost.owners[at] == owner


cdef bint lost_step(Lost *lost, Heap *heap, int steps) noexcept nogil:
    cdef Delivery *delivery
    while lost.left > 0 and heap.count and steps:
        if lost.at == 0 or lost.at > heap.count:
            lost.at = heap.count
        lost.at -= 1
        lost.idle += 1
        steps -= 1
        delivery = heap.items[lost.at].delivery
        if lost_has(lost, delivery.owner):
            delivery.delivered_ns = delivery.owner      # it can no longer be touched
            delivery.owner = RETURNED
            delivery.deadline_ns = 0
            heap_moved(heap, delivery)
            lost.left -= 1
            lost.idle = 0
            lost.at += 1        # it has moved to the front, and another one to its place
    # Between slices, items may move past the walk, so it is repeated; but not forever, as deliveries may be gone.
    if lost.left > 0 and lost.idle < PASSES * <int64_t> heap.count:
        return True
    lost_clear(lost)
    return False


cdef void lost_clear(Lost *lost) noexcept nogil:
    lost.count = lost.at = 0
    lost.left = lost.idle = 0


cdef void lost_free(Lost *lost) noexcept nogil:
    lost_clear(lost)
    free(lost.owners)
    lost.owners = NULL
    lost.room = 0
