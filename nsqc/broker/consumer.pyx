"""A consumer, from its channel's view."""

from libc.stdint cimport int64_t, uint16_t

from nsqc.store.message cimport Message


cdef class Consumer:
    """Abstract base of sessions."""

    cdef void deliver(self, Message *message, uint16_t attempts) noexcept:
        pass

    cdef void dismiss(self) noexcept:
        pass

    def stats(self, topic=None):
        """ClientStats; its publish count is that of topic, or else the first."""
        raise NotImplementedError


def busy_among(list consumers not None) -> tuple:
    """The connected consumers with messages in flight, and the total of these messages."""
    cdef Consumer consumer
    cdef int64_t in_flight = 0
    cdef list busy = []
    for consumer in consumers:
        if consumer.in_flight > 0 and not consumer.closed:
            in_flight += consumer.in_flight
            busy.append(consumer)
    return busy, in_flight
