"""Publishing to a dead-letter topic. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t

from nsqc.broker.dead cimport dead_ended, dead_recall
from nsqc.store.backlog cimport PUT_DISK, Commit, is_refused
from nsqc.store.delivery cimport Delivery
from nsqc.store.heap cimport heap_first, heap_push, heap_remove, heap_reserve
from nsqc.store.slices cimport SIZE_SHIFT

cdef enum:
    MOST = 1024         # messages of a batch, or as much work as those


@cython.final
cdef class DeadLetters(CommitWaiter):
    """Waits for the commit of a batch."""

    cdef void commit_ended(self, Commit commit, int error) noexcept:
        cdef Channel channel = self.channel
        if channel.sender is not self:
            return
        dead_ended(channel, error)
        if channel.throttled:
            channel._throttle()
        if error:
            channel._try_again()


cdef bint dead_publish(Topic target, Channel channel) noexcept:
    cdef DeadLetters batch
    cdef Delivery *delivery
    cdef bint waits = False
    cdef int put
    cdef int64_t left = MOST
    if not dead_recall(channel):
        return False
    while channel.dead.count and left > 0 and not target.commit.is_full() and heap_reserve(&channel.sent):
        delivery = heap_first(&channel.dead)
        put = target.publish_bytes(delivery.message.body, delivery.message.size, 0)
        if is_refused(put):
            break
        waits |= put == PUT_DISK
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
