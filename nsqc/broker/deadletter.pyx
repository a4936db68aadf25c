"""Publishing to a dead-letter topic. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t, uint32_t

from nsqc.broker.appending cimport append_dead
from nsqc.broker.dead cimport dead_ended, dead_recall
from nsqc.broker.origin cimport origin_head, origin_store
from nsqc.store.backlog cimport PUT_DISK, is_refused
from nsqc.store.delivery cimport Delivery
from nsqc.store.heap cimport heap_first, heap_push, heap_remove, heap_reserve
from nsqc.store.log.frame cimport MOST_ORIGIN
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
            channel._try_again()


cdef int put(Topic target, Channel channel, Delivery *delivery, bytes head) noexcept:
    """PutResult. Disk queue files cannot store an origin, and a memory queue may be written to a file."""
    cdef char c_origin[MOST_ORIGIN]
    cdef uint32_t size
    if not target.logs or target.exiting:
        return target.publish_bytes(delivery.message.body, delivery.message.size, 0)
    size = origin_store(c_origin, channel, delivery, head)
    return append_dead(target, delivery.message.body, delivery.message.size, c_origin, size)


cdef bint dead_publish(Topic target, Channel channel, bytes node) except *:
    cdef DeadLetters batch
    cdef Delivery *delivery
    cdef bint waits = False
    cdef int result
    cdef int64_t left = MOST
    cdef bytes head = origin_head(channel, channel.owner.name, node)
    if not dead_recall(channel):
        return False
    while channel.dead.count and left > 0 and not target.commit.is_full() and heap_reserve(&channel.sent):
        delivery = heap_first(&channel.dead)
        result = put(target, channel, delivery, head)
        if is_refused(result):
            break
        waits |= result == PUT_DISK
        heap_remove(&channel.dead, delivery)
        heap_push(&channel.sent, delivery)
        left -= 1 + <int64_t> (delivery.message.size >> SIZE_SHIFT)
    if channel.sent.count == 0:
        return False
    batch = DeadLetters.__new__(DeadLetters)
    batch.channel = channel
    channel.sender = batch
    if waits:
        target.commit.wait(batch)
    else:
        batch.commit_ended(target.commit, 0)
    return True
