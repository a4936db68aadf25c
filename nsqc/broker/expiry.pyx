"""Messages that expire. See the .pxd."""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t

from nsqc.broker.again cimport AgainSlot, again_add, again_first, again_remove, again_reserve
from nsqc.broker.channelrules cimport OVERFLOW_DIE
from nsqc.broker.channelstate cimport unlikely
from nsqc.broker.dead cimport dead_add, dead_has_room, dead_take
from nsqc.store.clock cimport dated_ns
from nsqc.store.delivery cimport delivery_free, delivery_reserve, delivery_take
from nsqc.store.heap cimport heap_first, heap_moved, heap_remove, heap_reserve
from nsqc.store.inflight cimport inflight_remove
from nsqc.store.message cimport message_unref
from nsqc.store.slices cimport STEPS

cdef int64_t NEVER = INT64_MAX


cdef inline bint dies(ChannelState channel, LeaveReason reason) noexcept:
    if reason == EXPIRED:
        return channel.rules.expired_die
    return reason == FAILED or channel.rules.overflow == OVERFLOW_DIE


cdef void count_left(ChannelState channel, LeaveReason reason) noexcept:
    if reason == EXPIRED:
        channel.counts.expired_count += 1
    elif reason != FAILED:
        channel.counts.overflow_count += 1


cdef void leave_taken(ChannelState channel, Taken *taken, LeaveReason reason) noexcept:
    count_left(channel, reason)
    if dies(channel, reason):
        dead_add(channel, taken.message, taken.attempts, taken.place, taken.offset, reason)
        return
    message_unref(taken.message)
    if taken.offset >= 0:
        channel.cursor.done(taken.offset)
    else:
        channel.backlog.done(taken.place)


cdef bint leave_delivery(ChannelState channel, Delivery *delivery, Heap *heap, LeaveReason reason) noexcept:
    cdef bint moves = dies(channel, reason)
    if moves and not heap_reserve(&channel.dead):
        return False
    if delivery.owner:
        inflight_remove(&channel.in_flight, delivery)
    if heap is &channel.again.heap:
        again_remove(&channel.again, delivery)
    else:
        heap_remove(heap, delivery)
    count_left(channel, reason)
    if moves:
        dead_take(channel, delivery, reason)
        return True
    if delivery.offset >= 0:
        channel.cursor.done(delivery.offset)
    else:
        channel.backlog.done(delivery.place)
    delivery_free(delivery)
    return True


cdef bint pop_again(ChannelState channel, Entry *entry) noexcept:
    cdef AgainSlot *slot = again_first(&channel.again)
    cdef Delivery *delivery = slot.delivery
    if slot.after > channel.taken and not (channel.backlog.depth() == 0
                                           and (channel.cursor is None or channel.cursor.is_drained())):
        return False
    again_remove(&channel.again, delivery)
    channel.place, channel.offset = delivery.place, delivery.offset
    entry.attempts = delivery.attempts
    entry.defer_ms = 0
    entry.message = delivery_take(delivery)
    return True


cdef inline void took(ChannelState channel) noexcept:
    """A message has left the queues."""
    channel.taken += 1
    if unlikely(channel.owner.crowded):
        channel.owner.on_room()


cdef bint withheld(ChannelState channel, Entry *entry) noexcept:
    cdef Taken taken
    cdef LeaveReason reason = reason_to_leave(channel, entry.message, entry.attempts)
    took(channel)
    if reason == STAYS:
        return False
    taken.message, taken.attempts = entry.message, entry.attempts
    taken.place, taken.offset = channel.place, channel.offset
    leave_taken(channel, &taken, reason)
    return True


cdef bint wait_to_expire(ChannelState channel, Delivery *delivery, Heap *heap) noexcept:
    if (channel.rules.message_ttl_ns == 0 or channel.again.heap.count >= channel.backlog.max_memory
            or not again_reserve(&channel.again)):
        return False
    if delivery.owner:
        inflight_remove(&channel.in_flight, delivery)
    heap_remove(heap, delivery)
    if delivery.offset >= 0:
        channel.cursor.came_back(delivery.offset, delivery.attempts)
    again_add(&channel.again, delivery, channel.taken + channel.count_waiting())
    return True


cdef bint take_oldest(ChannelState channel, int64_t before_ns, Taken *taken, int64_t *oldest_ns) noexcept:
    cdef Delivery *delivery = heap_first(&channel.again.heap)
    cdef Entry entry
    cdef int64_t waits_ns
    cdef uint32_t attempts = 0
    oldest_ns[0] = NEVER
    if delivery is not NULL:
        oldest_ns[0] = dated_ns(channel.clock, delivery.message.timestamp_ns)
        if oldest_ns[0] <= before_ns:
            again_remove(&channel.again, delivery)
            taken.place, taken.offset, taken.attempts = delivery.place, delivery.offset, delivery.attempts
            taken.message = delivery_take(delivery)
            return True
    waits_ns = dated_ns(channel.clock, channel.backlog.oldest_ns(&attempts))
    if 0 < waits_ns <= before_ns and channel.backlog.pop(&entry):
        taken.place = channel.backlog.place
        taken.offset = -1
    else:
        if waits_ns > 0:
            oldest_ns[0] = min(oldest_ns[0], waits_ns)
        if channel.cursor is None:
            return False
        if not channel.cursor.pop_before(&entry, before_ns, &waits_ns):
            oldest_ns[0] = min(oldest_ns[0], waits_ns)
            return False
        taken.place = NULL
        taken.offset = channel.cursor.offset
    taken.message = entry.message
    taken.attempts = entry.attempts
    took(channel)
    return True


cdef bint expire_deferred(ChannelState channel) noexcept:
    cdef Delivery *delivery
    cdef int64_t due_ns
    cdef int steps = STEPS
    # Backwards; an item that moves is replaced by one that was not checked, so that place is checked again.
    while channel.undated:
        channel.undated = min(channel.undated, channel.delayed.count)
        if channel.undated == 0:
            break
        if steps == 0:
            if channel.slicer.over():
                return False
            steps = STEPS
        steps -= 1
        delivery = channel.delayed.items[channel.undated - 1].delivery
        due_ns = due_or_expired(channel, delivery.message, delivery.delivered_ns)
        if due_ns == delivery.deadline_ns:
            channel.undated -= 1
            continue
        delivery.deadline_ns = due_ns
        heap_moved(&channel.delayed, delivery)
    return True


cdef bint leave_exhausted(ChannelState channel) noexcept:
    cdef uint32_t most = channel.rules.max_attempts, attempts
    cdef int steps = STEPS
    cdef Entry entry
    cdef Taken taken
    if most == 0:
        return True
    if not channel.sorted and channel.cursor is not None and not channel.rules.ordered:
        channel.cursor.exhausted_first(most)
        channel.sorted = True
    while delivery_reserve() and dead_has_room(channel):        # else dead_ended() follows
        attempts = 0
        if channel.backlog.oldest_ns(&attempts) > 0 and attempts >= most and channel.backlog.pop(&entry):
            taken.place = channel.backlog.place
            taken.offset = -1
        elif channel.cursor is not None and channel.cursor.pop_exhausted(&entry, most):
            taken.place = NULL
            taken.offset = channel.cursor.offset
        else:
            return True
        taken.message = entry.message
        taken.attempts = entry.attempts
        took(channel)
        leave_taken(channel, &taken, FAILED)
        steps -= 1
        if steps == 0:
            if channel.slicer.over():
                return False
            steps = STEPS
    return True


cdef bint expire_waiting(ChannelState channel) noexcept:
    cdef int64_t before_ns, oldest_ns, front_ns
    cdef int steps = STEPS
    cdef Taken taken
    channel.look_ns = NEVER
    if channel.rules is NULL or channel.rules.message_ttl_ns == 0:
        return True
    before_ns = channel.clock.wall - channel.rules.message_ttl_ns
    front_ns = expire_front(channel, before_ns)
    while True:
        if channel.rules.expired_die and not (delivery_reserve() and dead_has_room(channel)):
            # Either there is no memory, or dead letters must be published first: then dead_ended() follows.
            channel.look_ns = channel.clock.monotonic + LOOK_NS
            return True
        if not take_oldest(channel, before_ns, &taken, &oldest_ns):
            break
        leave_taken(channel, &taken, EXPIRED)
        steps -= 1
        if steps == 0:
            if channel.slicer.over():
                return False
            steps = STEPS
    oldest_ns = min(oldest_ns, front_ns)
    if oldest_ns != NEVER:
        channel.look_ns = channel.clock.monotonic + max(oldest_ns - before_ns, <int64_t> LOOK_NS)
    return True


cdef int64_t expire_front(ChannelState channel, int64_t before_ns) noexcept:
    """For an ordered channel, which has few there. Returns the publish time of the oldest remaining one, or NEVER."""
    cdef Delivery *delivery
    cdef int64_t oldest_ns = NEVER
    cdef uint32_t at = channel.front.count
    # Backwards: the item that takes a removed one's place is either already checked or next.
    while at > 0:
        at = min(at, channel.front.count)
        if at == 0:
            break
        delivery = channel.front.items[at - 1].delivery
        if (dated_ns(channel.clock, delivery.message.timestamp_ns) <= before_ns
                and leave_delivery(channel, delivery, &channel.front, EXPIRED)):
            continue
        oldest_ns = min(oldest_ns, dated_ns(channel.clock, delivery.message.timestamp_ns))
        at -= 1
    return oldest_ns
