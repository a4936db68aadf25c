# Publishes with an id, to a topic that remembers ids: stored once, even if repeated. See nsqc/store/publishids.pxd.

from libc.stdint cimport int64_t

from nsqc.broker.openbatch cimport Once
from nsqc.broker.topicstate cimport TopicState
from nsqc.store.backlog cimport PUT_DISK

cdef enum:
    GO = -1             # of once_begins(): publish, then once_ended()

# Whether the topic remembers ids; if so, sets the id of a publish.
cdef bint once_new(TopicState topic, Once *once, const char *c_id, Py_ssize_t length) noexcept
# Claims the id: GO, or the PutResult of the publish. With PUT_TAKEN, ask again later.
cdef int once_begins(TopicState topic, Once *once) noexcept
# Some of its messages were published, with this PutResult.
cdef inline void once_wrote(Once *once, int result) noexcept:
    once.wrote |= result == PUT_DISK
# All of them were published, or the last one was refused.
cdef void once_ended(TopicState topic, Once *once, int result) noexcept
# An error prevented the publish.
cdef void once_dropped(TopicState topic, Once *once) noexcept
# Applies the topic's rule: how long ids are remembered, and how many; 0: none. opened: the
# nsqc.store.log.recovery.Opened of its log, if just opened.
cdef int follow_dedupe(TopicState topic, int64_t window_ns, int64_t limit, object opened) except -1
