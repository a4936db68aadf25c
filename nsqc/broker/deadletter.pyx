"""Publishing to a dead-letter topic. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t

from nsqc.broker.dead cimport EXPIRED, FAILED, OVERFLOWED, LeaveReason, dead_ended, dead_recall
from nsqc.broker.origin cimport DEAD_EXPIRED, DEAD_OVERFLOWED, origin_head, origin_store
from nsqc.store.backlog cimport PUT_DISK, PUT_MEMORY, PUT_NO_MEMORY, is_refused
from nsqc.store.delivery cimport Delivery
from nsqc.store.heap cimport heap_first, heap_push, heap_remove, heap_reserve
from nsqc.store.log.frame cimport MOST_ORIGIN
from nsqc.store.message cimport Message
from nsqc.store.seams cimport LoopWork
from nsqc.store.slices cimport SIZE_SHIFT

cdef enum:
    MOST = 1024         # messages of a batch, or an equal amount of work


@cython.final
cdef class DeadLetters(LoopWork):
    """Waits for the commit of a batch."""

    cdef void commit_ended(self, LoopWork commit, int error) noexcept:
        cdef Channel channel = self.channel
        if channel.sender is not self:
            return
        dead_ended(channel, error)
        if channel.throttled:
            channel._throttle()
        if error:
            channel.owner.owner.on_dead(channel, error)


cdef int put(Topic target, Channel channel, Delivery *delivery, bytes head, int64_t more_bytes) noexcept:
    """PutResult. Disk queue files cannot store an origin, and a memory queue may be written to a file."""
    cdef char c_origin[MOST_ORIGIN]
    cdef Message *message = delivery.message
    if not target.logs:
        return target.publish_dead(message.body, message.size, NULL, 0, 0, 0)
    # A log counts its messages when they are written.
    return target.publish_dead(message.body, message.size, c_origin, origin_store(c_origin, channel, delivery, head),
                               channel.sent.count, more_bytes)


cdef inline LeaveReason reason_of(const Delivery *delivery) noexcept:
    if delivery.reason == DEAD_EXPIRED:
        return EXPIRED
    return OVERFLOWED if delivery.reason == DEAD_OVERFLOWED else FAILED


cdef int dead_publish(Topic target, Channel channel, bytes node, int *reasons) except -1:
    cdef DeadLetters batch
    cdef Delivery *delivery
    cdef bint waits = False
    cdef int result = PUT_DISK
    cdef int64_t left = MOST, sent_bytes = 0
    cdef bytes head = origin_head(channel, channel.owner.name, node)
    if not dead_recall(channel):
        return PUT_NO_MEMORY
    while channel.dead.count and left > 0 and not target.commit.is_full():
        delivery = heap_first(&channel.dead)
        result = put(target, channel, delivery, head, sent_bytes) if heap_reserve(&channel.sent) else PUT_NO_MEMORY
        if is_refused(result):
            break
        waits |= result == PUT_DISK
        reasons[0] |= 1 << reason_of(delivery)
        heap_remove(&channel.dead, delivery)
        heap_push(&channel.sent, delivery)
        sent_bytes += delivery.message.size
        left -= 1 + <int64_t> (delivery.message.size >> SIZE_SHIFT)
    if channel.sent.count == 0:
        return result
    batch = DeadLetters.__new__(DeadLetters)
    batch.channel = channel
    channel.sender = batch
    if waits:
        target.commit.wait(batch)
    else:
        batch.commit_ended(target.commit, 0)
    return PUT_MEMORY
