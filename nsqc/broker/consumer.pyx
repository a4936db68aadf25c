"""The consumer as its channel sees it."""

from libc.stdint cimport uint16_t

from nsqc.store.message cimport Message


cdef class Consumer:
    """Base of sessions, and of whatever else takes messages from a channel."""

    cdef void deliver(self, Message *message, uint16_t attempts) noexcept:
        pass

    cdef void dismiss(self) noexcept:
        pass
