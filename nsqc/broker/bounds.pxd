# max_depth and max_bytes of a topic and its channels: whether messages may be published, and which messages waiting in
# the topic itself are dropped. Messages in flight or deferred do not count; accepted messages are never refused.

from libc.stdint cimport int64_t
from nsqc.broker.channelstate cimport ChannelState
from nsqc.broker.openbatch cimport OpenBatch
from nsqc.broker.overflow cimport surely_fits
from nsqc.broker.topicstate cimport TopicState

# Whether there is room for all of these messages. tells: if not, topic.bound_reason and the following fields say why.
cdef bint has_room(TopicState topic, int64_t count, int64_t body_bytes, bint tells) noexcept


# Whether all of these messages may be published; if not, topic.bound_reason says why. Only asked if topic.bounded, for
# each publish: so it uses plain pointers.
cdef inline bint admits(TopicState topic, int64_t count, int64_t body_bytes) noexcept:
    cdef int at = 0
    if topic.direct or not topic.limits.refuses:
        while at < topic.limited_count and surely_fits(<ChannelState> topic.limited[at], count):
            at += 1
        if at == topic.limited_count:
            return True
    return has_room(topic, count, body_bytes, True)


cdef bint admits_batch(TopicState topic, OpenBatch batch) noexcept
# Sets topic.bounded and topic.limited, after a rule or the channels have changed.
cdef void set_bounded(TopicState topic) noexcept
cdef int set_limits(TopicState topic, object rule) except -1        # nsqc.broker.protocols.TopicRule

# A message waits in the topic itself, which has limits.
cdef void topic_waits(TopicState topic) noexcept
# Drops some of the expired messages in the topic itself; whether there are more.
cdef bint topic_expire(TopicState topic) noexcept
