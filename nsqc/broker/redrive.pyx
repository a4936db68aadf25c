"""Puts messages into one channel of a topic only. See the .pyi."""

cimport cython
from libc.errno cimport ENOMEM, ENOSPC, ESHUTDOWN
from libc.stdint cimport int64_t, uint32_t

from nsqc.broker.bounds cimport channel_admits
from nsqc.broker.broker cimport Broker
from nsqc.broker.channel cimport Channel
from nsqc.broker.topic cimport Topic
from nsqc.store.backlog cimport PUT_DISK, PUT_DROPPED, PUT_FULL, PUT_MEMORY, PUT_NO_MEMORY, is_refused
from nsqc.store.delivery cimport Delivery, delivery_free, delivery_new, delivery_reserve
from nsqc.store.fifo cimport Entry
from nsqc.store.heap cimport Heap, heap_first, heap_push, heap_remove, heap_reserve
from nsqc.store.message cimport Message, message_new, message_ref, message_unref
from nsqc.store.slices cimport Trash

from nsqc.broker.topic import DRAINING, FULL, NO_SPACE, PENDING


cdef object prepare(Broker broker, Topic topic, Channel channel):
    """Why the channel accepts nothing, as put_again(); None: it accepts messages, within its limits."""
    if broker.draining or broker.closing:
        return DRAINING
    if topic.exiting or channel.exiting:
        return ESHUTDOWN
    if broker.space.low or broker.guids.is_short():
        return NO_SPACE
    if channel.backlog.disk is None and not channel.ephemeral:
        # A channel of a log has no files until a message is for it alone.
        channel.backlog.attach(broker.disks.open(f"{topic.name.decode()}:{channel.name.decode()}"))
        topic.set_fan()
    broker.clock.refresh()
    return None


cdef int put(Topic topic, Channel channel, const char *c_body, uint32_t size) noexcept:
    """PutResult. If the channel has files, writes there: the message comes from a place that survives a kill, and
    memory does not."""
    cdef char c_id[16]
    cdef Message *message
    cdef int result
    if not channel_admits(topic, channel, 1, size):
        return PUT_FULL
    topic.guids.next(topic.clock.wall, c_id)
    message = message_new(c_id, topic.clock.wall, c_body, size)
    if message is NULL:
        return PUT_NO_MEMORY
    result = channel.put_copy(message, 0, 0)
    channel.slicer.add(channel)     # a limit may be exceeded
    if result == PUT_NO_MEMORY:
        message_unref(message)
    elif result != PUT_DROPPED:
        channel.counts.redriven_count += 1
    return result


cdef object outcome(int result):
    if result == PUT_NO_MEMORY:
        return ENOMEM
    if result == PUT_FULL:
        return FULL
    if result == PUT_DROPPED:
        return ENOSPC       # an ephemeral channel is full
    return PENDING if result == PUT_DISK else 0


def put_again(Broker broker not None, Topic topic not None, Channel channel not None, bytes body not None):
    """See the .pyi."""
    refused = prepare(broker, topic, channel)
    return outcome(put(topic, channel, body, <uint32_t> len(body))) if refused is None else refused


def synced(Broker broker not None, Channel channel not None):
    """See the .pyi."""
    return _sync(broker.disks, channel.backlog.disk)


async def _sync(disks, disk):
    if disk is None:
        return True
    disks.syncer.start(disk)
    await disks.synced(disk)
    return disk.name not in disks.syncer.failing


@cython.final
cdef class Taken:
    """Messages being moved from one channel to another."""

    def __init__(self, Channel source not None):
        self.source = source

    def __dealloc__(self):
        cdef Trash trash = Trash.new(None)
        trash.take_heap(0, &self.heap)

    def move(self, Broker broker not None, Topic topic not None, Channel channel not None, int64_t most):
        """See the .pyi."""
        cdef int result = PUT_MEMORY
        cdef Delivery *delivery
        cdef Entry entry
        cdef int64_t count = 0
        refused = prepare(broker, topic, channel)
        if refused is not None:
            return 0, refused
        broker.slicer.begin(broker.clock.monotonic)
        while count < most and not topic.commit.is_full():
            if not (heap_reserve(&self.heap) and delivery_reserve()):
                result = PUT_NO_MEMORY
                break
            if not self.source.backlog.pop(&entry):
                break
            delivery = delivery_new(entry.message, entry.attempts)
            delivery.place = self.source.backlog.place
            delivery.deadline_ns = entry.message.timestamp_ns
            heap_push(&self.heap, delivery)
            result = put(topic, channel, entry.message.body, entry.message.size)
            if is_refused(result) or result == PUT_DROPPED:
                give_back(self.source, &self.heap, delivery)
                break
            count += 1
            if broker.slicer.over():
                break
        return count, outcome(result)

    def finish(self):
        """See the .pyi."""
        cdef Delivery *delivery
        while self.heap.count and not self.source.exiting:      # a deleted channel's are freed with this
            delivery = heap_first(&self.heap)
            heap_remove(&self.heap, delivery)
            self.source.backlog.done(delivery.place)
            delivery_free(delivery)

    def give_back(self):
        """See the .pyi."""
        while self.heap.count and not self.source.exiting and give_back(self.source, &self.heap,
                                                                        heap_first(&self.heap)):
            pass
        self.finish()       # no memory: they stay in the target


cdef bint give_back(Channel source, Heap *heap, Delivery *delivery) noexcept:
    """False: no memory; it stays in the heap."""
    message_ref(delivery.message)
    if source.backlog.put(delivery.message, delivery.attempts, 0, True, delivery.place) == PUT_NO_MEMORY:
        message_unref(delivery.message)
        return False
    heap_remove(heap, delivery)
    delivery_free(delivery)
    return True
