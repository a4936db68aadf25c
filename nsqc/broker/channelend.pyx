"""The end of a channel. See the .pxd."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t

from nsqc.broker.again cimport again_drop_logged, again_forget
from nsqc.broker.channelcontrol cimport take_out
from nsqc.broker.channelstate cimport drop_logged
from nsqc.broker.consumer cimport Consumer
from nsqc.broker.dead cimport dead_recall
from nsqc.broker.ring cimport ready_remove
from nsqc.store.delivery cimport Delivery, delivery_free
from nsqc.store.heap cimport Heap, heap_first, heap_remove


cdef int delete_channel(Channel channel) except -1:
    """Closes the consumers and drops everything, files included."""
    leave(channel)
    channel._drop_all()
    channel.timers.disarm(channel)
    channel.backlog.delete()
    if channel.cursor is not None:
        channel.cursor.drop()
    channel.owner = None
    return 0


cdef tuple close_channel(Channel channel):
    """Closes the consumers and writes everything to disk."""
    cdef Delivery *delivery
    cdef dict delays
    cdef int64_t in_flight = channel.timeouts.count, deferred = channel.delayed.count, waiting
    leave(channel)
    if not dead_recall(channel):
        raise OSError(ENOMEM, "no memory to write the channel out")
    if channel.cursor is not None:
        drop_logged(&channel.dead)      # the journal has their attempts
        drop_logged(&channel.front)
        again_drop_logged(&channel.again)
        in_flight -= record_out(channel)
    deferred += channel.dead.count + channel.front.count        # before they are written
    waiting = channel.again.heap.count
    if channel.backlog.disk is None:
        return (0, 0, 0, {})
    delays = channel.backlog.delays
    # Before those in memory: if no others are on disk, the next run finds them first.
    write_all_back(channel, &channel.dead)
    waiting += channel.backlog.spill()
    channel.clock.refresh()
    while channel.timeouts.count:
        delivery = heap_first(&channel.timeouts)
        write_back(channel, delivery)
        take_out(channel, delivery)
        delivery_free(delivery)
    while channel.delayed.count:
        delivery = heap_first(&channel.delayed)
        delays[delivery.message.id[:16]] = channel.clock.wall + delivery.delivered_ns - channel.clock.monotonic
        write_back(channel, delivery)
        heap_remove(&channel.delayed, delivery)
        delivery_free(delivery)
    write_all_back(channel, &channel.again.heap)
    again_forget(&channel.again)
    write_all_back(channel, &channel.front)
    channel.backlog.close()
    return (waiting, in_flight, deferred, delays)


cdef int64_t record_out(Channel channel) except -1:
    """Writes the attempts of the log's messages in flight to the journal; returns how many there are."""
    cdef Delivery *delivery
    cdef int64_t index = 0, count = 0
    while index < channel.timeouts.count:
        delivery = channel.timeouts.items[index].delivery
        if delivery.offset < 0:
            index += 1
            continue
        if delivery.attempts > 1:
            channel.cursor.came_back(delivery.offset, delivery.attempts)
        take_out(channel, delivery)
        delivery_free(delivery)
        count += 1
        index = 0 if index else index
    channel.cursor.release_owner()
    return count


cdef int write_all_back(Channel channel, Heap *heap) except -1:
    cdef Delivery *delivery
    while heap.count:
        delivery = heap_first(heap)
        write_back(channel, delivery)
        heap_remove(heap, delivery)
        delivery_free(delivery)
    return 0


cdef int write_back(Channel channel, Delivery *delivery) except -1:
    if channel.backlog.disk.append(delivery.message, delivery.attempts, delivery.place) < 0:
        raise OSError(ENOMEM, "no memory to write the channel out")
    return 0


cdef int leave(Channel channel) except -1:
    cdef Consumer consumer
    channel.exiting = True
    for consumer in list(channel.clients.values()):
        ready_remove(&channel.ready, consumer)
        consumer.dismiss()
    channel.clients.clear()
    return 0
