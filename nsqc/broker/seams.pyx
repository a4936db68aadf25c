"""Abstract bases for upward calls of the broker. See the .pxd."""

from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.seams cimport StoreOwner


cdef class TopicOwner:
    """The broker of a topic."""

    cdef StoreOwner make_channel(self, StoreOwner topic, bytes name):
        raise NotImplementedError

    cdef int on_channel_created(self, StoreOwner topic, StoreOwner channel) except -1:
        raise NotImplementedError

    cdef int on_channel_deleted(self, StoreOwner topic, StoreOwner channel) except -1:
        raise NotImplementedError

    cdef int on_last_channel_gone(self, StoreOwner topic) except -1:
        raise NotImplementedError

    cdef int on_topic_deleted(self, StoreOwner topic) except -1:
        raise NotImplementedError

    cdef void on_written(self, StoreOwner topic, StoreOwner channel, int error) noexcept:
        pass

    cdef void on_dead(self, StoreOwner channel, int error) noexcept:
        pass

    cdef void on_aging(self, StoreOwner topic) noexcept:
        pass

    cdef void on_bound(self, StoreOwner topic) noexcept:
        pass

    cdef int on_log_full(self, StoreOwner topic, bint full) except -1:
        return 0

    cdef int on_log_left(self, StoreOwner topic, TopicLog log) except -1:
        return 0

    cdef int on_refused(self, reason) except -1:
        return 0

    cdef void resume_later(self, StoreOwner topic) noexcept:
        pass
