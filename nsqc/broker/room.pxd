# Publishers that wait for room (--publish-wait): a rule refused their publish, and they retry when messages have left.
# The longest waiting one goes first, so small publishes do not starve a batch.

from libc.stdint cimport int64_t
from nsqc.broker.topicstate cimport TopicState
from nsqc.store.seams cimport LoopWork

# Whether a publish with this PutResult, the last one refused, may succeed once messages have left.
cdef bint room_helps(TopicState topic, int result) noexcept
# Has the slicer run the publisher when the last refused publish fits, or at until_ns, monotonic.
cdef void room_wait(TopicState topic, LoopWork publisher, int64_t until_ns) noexcept
cdef void room_leave(TopicState topic, LoopWork publisher) noexcept     # the publisher stops waiting
cdef void room_made(TopicState topic) noexcept                           # a message has left
cdef void room_end(TopicState topic) noexcept                            # all retry: the topic is being deleted


cdef class Room(LoopWork):
    cdef TopicState topic
    cdef object call
