"""Abstract bases for upward calls of the broker. See the .pxd."""

from nsqc.store.backlog cimport BacklogOwner, CommitLog, CommitOwner


cdef class Publisher(CommitWaiter):
    """A publishing client that can be paused."""

    cdef void publish_on(self) noexcept:
        pass


cdef class ChannelOwner(CommitOwner):
    """The topic of a channel."""

    cdef void on_channel_stuck(self, BacklogOwner channel, int error, bint first) noexcept:
        pass

    cdef void on_channel_healed(self, BacklogOwner channel) noexcept:
        pass

    cdef bint is_behind(self) noexcept:
        return False

    cdef void on_dead(self, BacklogOwner channel) noexcept:
        pass

    cdef void on_room(self) noexcept:
        pass

    cdef int on_clients_gone(self, BacklogOwner channel) except -1:
        raise NotImplementedError


cdef class TopicOwner:
    """The broker of a topic."""

    cdef BacklogOwner make_channel(self, CommitOwner topic, bytes name):
        raise NotImplementedError

    cdef int on_channel_created(self, CommitOwner topic, BacklogOwner channel) except -1:
        raise NotImplementedError

    cdef int on_channel_deleted(self, CommitOwner topic, BacklogOwner channel) except -1:
        raise NotImplementedError

    cdef int on_last_channel_gone(self, CommitOwner topic) except -1:
        raise NotImplementedError

    cdef int on_topic_deleted(self, CommitOwner topic) except -1:
        raise NotImplementedError

    cdef void on_write_failed(self, CommitOwner topic, BacklogOwner channel, int error) noexcept:
        pass

    cdef void on_write_healed(self, CommitOwner topic, BacklogOwner channel) noexcept:
        pass

    cdef void on_dead(self, BacklogOwner channel) noexcept:
        pass

    cdef void on_log_grew(self, CommitOwner topic) noexcept:
        pass

    cdef void on_aging(self, CommitOwner topic) noexcept:
        pass

    cdef void on_bound(self, CommitOwner topic) noexcept:
        pass

    cdef int on_log_full(self, CommitOwner topic, bint full) except -1:
        return 0

    cdef int on_log_left(self, CommitOwner topic, CommitLog log) except -1:
        return 0

    cdef int on_refused(self, reason) except -1:
        return 0

    cdef object space_reason(self):
        return ""

    cdef void resume_later(self, CommitOwner topic) noexcept:
        pass
