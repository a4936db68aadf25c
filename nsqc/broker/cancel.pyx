"""Cancels messages that a channel has deferred, by id or by offset in a log. For Python: see the .pyi."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from nsqc.broker.channel cimport Channel
from nsqc.store.delivery cimport Delivery, delivery_free
from nsqc.store.heap cimport heap_remove
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.log.offsets cimport offsets_have
from nsqc.store.log.waiting cimport deferred_take
from nsqc.store.slices cimport STEPS
from nsqc.wire.const cimport MESSAGE_ID_BYTES


@cython.final
cdef class Search:
    """A search through the deferred messages of a channel, backwards from the end of the heap: meanwhile a removal
    moves others only to places not searched yet. Only an added message may move one to a searched place; then the
    search starts over at once."""

    cdef Channel channel
    cdef char id[16]
    cdef uint32_t at                # earlier items of the heap are still to be searched
    cdef uint64_t added             # rises with each added message
    cdef bint passed                # some may have moved to a searched place

    def __init__(self, Channel channel not None, bytes message_id not None):
        if len(message_id) != MESSAGE_ID_BYTES:
            raise ValueError(message_id)
        self.channel = channel
        memcpy(self.id, <const char *> message_id, MESSAGE_ID_BYTES)
        self.at = channel.delayed.count
        self.added = self._added()

    cdef uint64_t _added(self) noexcept:
        return self.channel.counts.message_count + self.channel.counts.requeue_count + self.channel.counts.timeout_count

    def step(self):
        cdef Channel channel = self.channel
        cdef Delivery *delivery
        cdef int steps = STEPS
        if channel.exiting:
            return False
        channel.clock.refresh()
        channel.slicer.begin(channel.clock.monotonic)
        self.passed |= self.added != self._added()
        self.added = self._added()
        self.at = min(self.at, channel.delayed.count)
        while True:
            while self.at:
                self.at -= 1
                delivery = channel.delayed.items[self.at].delivery
                if memcmp(delivery.message.id, self.id, MESSAGE_ID_BYTES) == 0:
                    return self._take(delivery)
                steps -= 1
                if steps == 0:
                    if channel.slicer.over() and not self.passed:
                        return None
                    steps = STEPS
            if not self.passed:
                return False
            self.passed = False
            self.at = channel.delayed.count

    cdef bint _take(self, Delivery *delivery) except *:
        """Finishes it, unless it is due: then it is about to be delivered."""
        if delivery.deadline_ns <= self.channel.clock.monotonic:
            return False
        heap_remove(&self.channel.delayed, delivery)
        self.channel.backlog.done(delivery.place)
        delivery_free(delivery)
        return True


def take_logged(Channel channel not None, int64_t offset) -> bool:
    """The same for a message of the topic's log."""
    cdef Cursor cursor = channel.cursor
    cdef int64_t at
    channel.clock.refresh()
    if channel.exiting or cursor is None:
        return False
    if offset >= cursor.next:
        if offsets_have(&cursor.skips, offset) or cursor.log.delay_of(offset) <= channel.clock.monotonic:
            return False
        cursor.skip(offset, offset + 1)
        return True
    for at in range(cursor.deferred.count):
        if cursor.deferred.items[at].offset == offset:
            if cursor.deferred.items[at].due_ns <= channel.clock.monotonic:
                return False
            deferred_take(&cursor.deferred, at)
            cursor.done(offset)
            return True
    return False


def is_on_disk(Channel channel not None, bytes message_id not None) -> bool:
    """Whether it is deferred in the channel's disk queue, from which it cannot be removed."""
    return message_id in channel.backlog.delays
