# max_depth and max_bytes of a topic and its channels: decides whether messages may be published, and drops messages
# that wait in the topic itself. Messages in flight or deferred do not count; accepted messages are never refused.

from libc.stdint cimport int64_t
from nsqc.broker.channelstate cimport ChannelState
from nsqc.broker.openbatch cimport OpenBatch
from nsqc.broker.overflow cimport surely_fits
from nsqc.broker.topicstate cimport TopicState
from nsqc.store.backlog cimport PUT_EXITING, PUT_FULL, PUT_MEMORY

# Whether these messages fit into one channel; if not, topic.bound_reason says why.
cdef bint channel_admits(TopicState topic, ChannelState channel, int64_t count, int64_t body_bytes) noexcept
# Whether publishers have to wait while its channels move excess messages to their dead-letter topics.
cdef bint overflows(TopicState topic) noexcept
# Whether all of these messages fit. tells: if not, explains it in topic.bound_reason and the following fields.
cdef bint has_room(TopicState topic, int64_t count, int64_t body_bytes, bint tells) noexcept


# Whether all of these messages may be published; if not, topic.bound_reason says why. Runs for each publish if
# topic.bounded, so it uses plain pointers.
cdef inline bint admits(TopicState topic, int64_t count, int64_t body_bytes) noexcept:
    cdef int at = 0
    if topic.direct or not topic.limits.refuses:
        while at < topic.limited_count and surely_fits(<ChannelState> topic.limited[at], count):
            at += 1
        if at == topic.limited_count:
            return True
    return has_room(topic, count, body_bytes, True)


# Whether a topic takes these messages: PUT_MEMORY, or why it does not. Its storage may still refuse them. Of publishes
# and dead letters alike.
cdef inline int admission(TopicState topic, int64_t count, int64_t body_bytes) noexcept:
    if topic.exiting:
        return PUT_EXITING
    return PUT_FULL if topic.bounded and not admits(topic, count, body_bytes) else PUT_MEMORY


cdef bint admits_batch(TopicState topic, OpenBatch batch) noexcept
# Sets topic.bounded and topic.limited, after a change of a rule or the channels.
cdef void set_bounded(TopicState topic) noexcept
cdef int set_limits(TopicState topic, object rule) except -1        # nsqc.options.topic_rules.TopicRule

# A message was added to the topic's own backlog, which has limits.
cdef void topic_waits(TopicState topic) noexcept
# Drops some expired messages from the topic's own backlog; returns whether there are more.
cdef bint topic_expire(TopicState topic) noexcept
