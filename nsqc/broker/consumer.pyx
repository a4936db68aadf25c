"""The consumer as its channel sees it."""

from libc.stdint cimport uint16_t

from nsqc.store.message cimport Message


cdef class Consumer:
    """Abstract base of sessions."""

    cdef void deliver(self, Message *message, uint16_t attempts) noexcept:
        pass

    cdef void dismiss(self) noexcept:
        pass

    def stats(self, topic=None):
        """ClientStats; of the publish counts the one of topic, or the first."""
        raise NotImplementedError
