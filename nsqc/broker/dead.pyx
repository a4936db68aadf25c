"""A channel's messages on their way to its dead-letter topic. See the .pxd."""

from libc.stdint cimport int64_t, uint16_t, uint32_t

from nsqc.broker.lost cimport RETURNED
from nsqc.broker.origin cimport DEAD_ATTEMPTS, DEAD_EXPIRED, DEAD_OVERFLOWED, origin_client
from nsqc.store.delivery cimport delivery_free, delivery_new
from nsqc.store.heap cimport heap_first, heap_push, heap_remove, heap_reserve

cdef enum:
    MOST_DEAD = 4096        # in memory on their way, beyond those that were in flight


cdef bint dead_has_room(ChannelState channel) noexcept:
    return channel.dead.count + channel.sent.count < MOST_DEAD and heap_reserve(&channel.dead)


cdef void dead_add(ChannelState channel, Message *message, uint32_t attempts, Place *place, int64_t offset,
                   LeaveReason reason) noexcept:
    cdef Delivery *delivery = delivery_new(message, <uint16_t> attempts)
    delivery.place = place
    delivery.offset = offset
    delivery.owner = 0
    delivery.reason = DEAD_ATTEMPTS
    dead_take(channel, delivery, reason)


cdef void dead_take(ChannelState channel, Delivery *delivery, LeaveReason reason) noexcept:
    if reason != FAILED:
        delivery.reason = DEAD_EXPIRED if reason == EXPIRED else DEAD_OVERFLOWED
    if delivery.owner != RETURNED:      # otherwise it already has its consumer's id
        delivery.delivered_ns = delivery.owner
        if delivery.owner in channel.clients:
            origin_client(channel, channel.clients[delivery.owner], delivery.owner)
    delivery.owner = 0
    if channel.dead.count + channel.sent.count == 0:
        channel.dead_serial = 0
    # The oldest goes first; within a batch, the first.
    delivery.deadline_ns = delivery.message.timestamp_ns + channel.dead_serial
    channel.dead_serial += 1
    heap_push(&channel.dead, delivery)
    if delivery.offset >= 0:
        # Its attempts are known after a kill, so it comes here again rather than to a consumer.
        channel.cursor.came_back(delivery.offset, delivery.attempts)
    channel.slicer.add(channel)


cdef void dead_ended(ChannelState channel, int error) noexcept:
    cdef Delivery *delivery
    if error:
        dead_recall(channel)
        return
    channel.sender = None
    channel.dead_waits = False
    while channel.sent.count:
        delivery = heap_first(&channel.sent)
        heap_remove(&channel.sent, delivery)
        if delivery.offset >= 0:
            channel.cursor.done(delivery.offset)
        else:
            channel.backlog.done(delivery.place)
        delivery_free(delivery)
        channel.counts.dead_letter_count += 1
    channel.slicer.add(channel)     # for more of them, or for messages that waited for room
    channel.owner.on_moved()


cdef bint dead_recall(ChannelState channel) noexcept:
    cdef Delivery *delivery
    channel.sender = None
    while channel.sent.count:
        if not heap_reserve(&channel.dead):
            return False
        delivery = heap_first(&channel.sent)
        heap_remove(&channel.sent, delivery)
        heap_push(&channel.dead, delivery)
    return True
