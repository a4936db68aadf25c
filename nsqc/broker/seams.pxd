# Upward calls of the broker: abstract bases that a higher part implements and passes in when it creates the lower one.
# Consumer, through which a channel delivers, has its own header. Seams to Python are Protocols: protocols.py.
#
# Topic and Channel are defined above this header, so arguments have the types of their bases.

from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.seams cimport StoreOwner


cdef class TopicOwner:
    # The broker of a topic.
    cdef public bint closing            # the daemon is stopping: nothing new is made, and nothing moves
    cdef public bint draining           # nothing new is accepted or delivered; messages in flight may finish
    cdef bint failing                   # a write has failed: on_written() is called for commits that succeed, too
    cdef StoreOwner make_channel(self, StoreOwner topic, bytes name)
    cdef int on_channel_created(self, StoreOwner topic, StoreOwner channel) except -1
    # The channel is about to drop its messages.
    cdef int on_channel_deleted(self, StoreOwner topic, StoreOwner channel) except -1
    cdef int on_last_channel_gone(self, StoreOwner topic) except -1     # of an ephemeral topic
    cdef int on_topic_deleted(self, StoreOwner topic) except -1         # with all its messages
    # A write has failed, of a channel or, if that is None, of the topic itself. error 0: the failed data was written
    # or is gone; both None: a commit has succeeded.
    cdef void on_written(self, StoreOwner topic, StoreOwner channel, int error) noexcept
    # It may have messages to drop, ids of publishes to forget, or segments of its log to remove.
    cdef void on_aging(self, StoreOwner topic) noexcept
    cdef void on_bound(self, StoreOwner topic) noexcept                     # it refuses publishes: see bound_reason
    cdef int on_log_full(self, StoreOwner topic, bint full) except -1       # or no longer full
    cdef int on_log_left(self, StoreOwner topic, TopicLog log) except -1    # everything in it is finished
    cdef int on_refused(self, reason) except -1                             # a publish, see nsqc.broker.refusals
    # Messages go to its dead-letter topic; or, with an errno, could not be written there.
    cdef void on_dead(self, StoreOwner channel, int error) noexcept
    cdef void resume_later(self, StoreOwner topic) noexcept                 # calls topic.resume() soon
