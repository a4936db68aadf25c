# max_depth and max_bytes of a topic and its channels: whether messages may be published, and what a topic drops of what
# waits in itself. What is in flight or deferred does not count, and whatever was accepted before is never refused.

from libc.stdint cimport int64_t
from nsqc.broker.channelstate cimport ChannelState
from nsqc.broker.overflow cimport surely_fits
from nsqc.broker.topicstate cimport TopicState
from nsqc.store.fifo cimport Fifo

# Whether there is room for messages, all of them. tells: if not, topic.bound_reason and the fields behind it say why.
cdef bint has_room(TopicState topic, int64_t count, int64_t body_bytes, bint tells) noexcept


# Whether messages may be published, all or none of them; if not, topic.bound_reason says why. Asked if topic.bounded,
# for each publish: so it goes through plain pointers.
cdef inline bint admits(TopicState topic, int64_t count, int64_t body_bytes) noexcept:
    cdef int at = 0
    if topic.direct or not topic.limits.refuses:
        while at < topic.limited_count and surely_fits(<ChannelState> topic.limited[at], count):
            at += 1
        if at == topic.limited_count:
            return True
    return has_room(topic, count, body_bytes, True)


# The same for messages of a checked multi-publish, or gathered, and for lines.
cdef bint admits_batch(TopicState topic, const char *c_at, Fifo *gathered, int64_t count) noexcept
cdef bint admits_lines(TopicState topic, const char *c_at, const char *c_end) noexcept
# Sets topic.bounded and topic.limited, after a rule or the channels have changed.
cdef void set_bounded(TopicState topic) noexcept
cdef int set_limits(TopicState topic, object rule) except -1        # nsqc.broker.protocols.TopicRule

# A message waits in the topic itself, which has limits.
cdef void topic_waits(TopicState topic) noexcept
# Drops what has expired in the topic itself, some of it; whether there is more.
cdef bint topic_expire(TopicState topic) noexcept
