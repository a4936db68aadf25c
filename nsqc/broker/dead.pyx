"""A channel's messages on their way to its dead-letter topic. See the .pxd."""

from libc.stdint cimport int64_t, uint16_t, uint32_t

from nsqc.broker.lost cimport RETURNED
from nsqc.broker.origin cimport origin_client
from nsqc.store.delivery cimport delivery_free, delivery_new
from nsqc.store.heap cimport heap_first, heap_push, heap_remove, heap_reserve
from nsqc.store.inflight cimport inflight_remove


cdef bint dead_take(ChannelState channel, Delivery *delivery) noexcept:
    if not heap_reserve(&channel.dead):
        return False
    inflight_remove(&channel.in_flight, delivery)
    heap_remove(&channel.timeouts, delivery)
    if delivery.owner != RETURNED:
        delivery.delivered_ns = delivery.owner
        if delivery.owner in channel.clients:
            origin_client(channel, channel.clients[delivery.owner], delivery.owner)
    add(channel, delivery)
    return True


cdef void dead_add(ChannelState channel, Message *message, uint32_t attempts, Place *place, int64_t offset,
                   DeadReason reason) noexcept:
    cdef Delivery *delivery = delivery_new(message, <uint16_t> attempts)
    delivery.place = place
    delivery.offset = offset
    delivery.reason = <uint16_t> reason
    add(channel, delivery)


cdef void add(ChannelState channel, Delivery *delivery) noexcept:
    delivery.owner = 0
    delivery.deadline_ns = delivery.message.timestamp_ns        # the oldest goes first
    heap_push(&channel.dead, delivery)
    if delivery.offset >= 0:
        # After a kill its attempts are known, so it comes here again rather than to a consumer.
        channel.cursor.came_back(delivery.offset, delivery.attempts)
    channel.slicer.add(channel)


cdef void dead_ended(ChannelState channel, int error) noexcept:
    cdef Delivery *delivery
    if error:
        dead_recall(channel)
        return
    channel.sender = None
    while channel.sent.count:
        delivery = heap_first(&channel.sent)
        heap_remove(&channel.sent, delivery)
        if delivery.offset >= 0:
            channel.cursor.done(delivery.offset)
        else:
            channel.backlog.done(delivery.place)
        delivery_free(delivery)
        channel.dead_letter_count += 1
    if channel.dead.count:
        channel.slicer.add(channel)


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
