# Publishers that wait for room (--publish-wait): a rule refuses what they publish, and they try again when messages
# have left. The one that has waited longest goes first, so a batch is not starved by smaller publishes.

from libc.stdint cimport int64_t
from nsqc.broker.seams cimport Publisher
from nsqc.broker.topicstate cimport TopicState

# Whether a publish with this PutResult, the last one refused, may be accepted once messages have left.
cdef bint room_helps(TopicState topic, int result) noexcept
# publisher.publish_on() follows: when there is room for the publish that was refused last, or at until_ns, monotonic.
cdef void room_wait(TopicState topic, Publisher publisher, int64_t until_ns) noexcept
cdef void room_leave(TopicState topic, Publisher publisher) noexcept     # the publisher waits no longer
cdef void room_made(TopicState topic) noexcept                           # a message has left
cdef void room_end(TopicState topic) noexcept                            # all try again: the topic is being deleted


cdef class Room(Publisher):
    cdef TopicState topic
    cdef object call
