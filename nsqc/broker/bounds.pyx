"""Limits of waiting messages. See the .pxd."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc

from nsqc.broker.channel cimport Channel
from nsqc.broker.channelrules cimport OVERFLOW_DIE, OVERFLOW_DROP, overflow_of
from nsqc.broker.channelstate cimport ChannelState
from nsqc.broker.dead cimport dead_has_room
from nsqc.broker.flow cimport flow_refresh
from nsqc.broker.overflow cimport channel_bytes, channel_exceeds, exceeds, surely_fits
from nsqc.store.clock cimport dated_ns
from nsqc.store.fifo cimport Entry
from nsqc.store.message cimport message_unref
from nsqc.store.slices cimport STEPS

cdef enum:
    AT_ONCE = 4096          # expired messages of a topic, between two looks at the clock


# ---------------------------------------------------------------------- depth


cdef bint topic_exceeds(TopicState topic, int64_t count, int64_t body_bytes) noexcept:
    return exceeds(topic.count_waiting(), topic.backlog.bytes(), count, body_bytes, topic.limits.max_depth,
                   topic.limits.max_bytes)


# ---------------------------------------------------------------------- publishing


cdef bint has_room(TopicState topic, int64_t count, int64_t body_bytes, bint tells) noexcept:
    cdef Channel channel
    if topic.limits.refuses and not topic.direct and topic_exceeds(topic, count, body_bytes):
        if tells:
            tell(topic, None, topic.count_waiting(), topic.backlog.bytes(), count, body_bytes)
        return False
    for channel in topic.fan:
        if not channel_has_room(channel, count, body_bytes):
            if tells:
                tell(topic, channel, channel.count_waiting(), channel_bytes(channel), count, body_bytes)
            return False
    return True


cdef bint channel_admits(TopicState topic, ChannelState channel, int64_t count, int64_t body_bytes) noexcept:
    if channel_has_room(channel, count, body_bytes):
        return True
    tell(topic, channel, channel.count_waiting(), channel_bytes(channel), count, body_bytes)
    return False


cdef inline bint channel_has_room(ChannelState channel, int64_t count, int64_t body_bytes) noexcept:
    if not refuses(channel) or surely_fits(channel, count) or not channel_exceeds(channel, count, body_bytes):
        return True
    # While the dead-letter topic accepts messages, there will be room: overflows() has publishers wait for it.
    return channel.rules.overflow == OVERFLOW_DIE and not (channel.dead_waits and not dead_has_room(channel))


cdef bint overflows(TopicState topic) noexcept:
    cdef ChannelState channel
    cdef int at
    for at in range(topic.limited_count):
        channel = <ChannelState> topic.limited[at]
        if (channel.rules.overflow == OVERFLOW_DIE and channel.dead.count + channel.sent.count > 0
                and not channel.dead_waits and not surely_fits(channel, 0) and not dead_has_room(channel)
                and channel_exceeds(channel, 0, 0)):
            return True
    return False


cdef inline bint refuses(ChannelState channel) noexcept:
    """Whether its limits may refuse publishes."""
    return (channel.rules is not NULL and channel.rules.overflow != OVERFLOW_DROP
            and (channel.rules.max_depth > 0 or channel.rules.max_bytes > 0))


cdef int tell(TopicState topic, ChannelState channel, int64_t depth, int64_t waiting, int64_t count,
              int64_t body_bytes) except -1:
    """Records why a publish is refused: the rule, its value, and its origin."""
    cdef object what, source = topic.rule_source
    cdef int64_t max_depth = topic.limits.max_depth, max_bytes = topic.limits.max_bytes
    if channel is None:
        what = f"topic {topic.name.decode()}"
    else:
        what = f"channel {channel.name.decode()}"
        source = channel.rule.source
        max_depth = channel.rules.max_depth
        max_bytes = channel.rules.max_bytes
    topic.bound_count, topic.bound_bytes = count, body_bytes
    topic.bound_lasts = exceeds(0, 0, count, body_bytes, max_depth, max_bytes)
    if 0 < max_depth < depth + count:
        text = f"{what} has {depth} messages, its max_depth is {max_depth} ({source})"
    else:
        text = f"{what} has {waiting} bytes, its max_bytes is {max_bytes} ({source})"
    if channel is not None and channel.rules.overflow == OVERFLOW_DIE:
        text = f"{text}, and its dead-letter topic {channel.dead_letter.decode()} accepts nothing"
    elif count != 1:
        text = f"{text}: a batch of {count} messages does not fit"
    topic.bound_reason = text
    return 0


cdef bint admits_batch(TopicState topic, OpenBatch batch) noexcept:
    cdef int64_t count, body_bytes
    batch.measure(&count, &body_bytes)
    return admits(topic, count, body_bytes)


# ---------------------------------------------------------------------- rules


cdef void set_bounded(TopicState topic) noexcept:
    cdef Channel channel
    cdef list limited = [channel for channel in topic.fan if refuses(channel)]
    topic.bounded = topic.limits.refuses or len(limited) > 0
    topic.limited_count = 0
    free(topic.limited)
    topic.limited = <PyObject **> malloc(len(limited) * sizeof(PyObject *)) if limited else NULL
    if limited and topic.limited is NULL:
        topic.limited_count = -1        # no memory: has_room() checks each publish
        return
    for channel in limited:
        topic.limited[topic.limited_count] = <PyObject *> channel
        topic.limited_count += 1


cdef int set_limits(TopicState topic, object rule) except -1:
    cdef bint limited
    topic.rule_source = rule.source
    topic.limits.max_depth = rule.max_depth
    topic.limits.max_bytes = rule.max_bytes
    # Channels create dead letters: a message that should become one waits here for a channel, or is refused.
    topic.limits.message_ttl_ns = rule.message_ttl if rule.expired == "drop" else 0
    limited = topic.limits.max_depth > 0 or topic.limits.max_bytes > 0
    topic.limits.trims = limited and overflow_of(rule, True) == OVERFLOW_DROP
    topic.limits.refuses = limited and not topic.limits.trims
    topic.limits.watched = topic.limits.trims or topic.limits.message_ttl_ns > 0
    set_bounded(topic)
    if topic.limits.watched and topic.backlog.depth() > 0:
        topic_waits(topic)
    return 0


# ---------------------------------------------------------------------- drops of excess and expired messages


cdef void topic_waits(TopicState topic) noexcept:
    cdef int steps = STEPS
    while steps and topic.limits.trims and topic_exceeds(topic, 0, 0) and drop_oldest(topic):
        topic.overflow_count += 1
        steps -= 1
    if not topic.aging:
        topic.aging = True
        topic.owner.on_aging(topic)


cdef bint topic_expire(TopicState topic) noexcept:
    cdef int left = AT_ONCE
    cdef int64_t oldest_ns
    cdef uint32_t attempts = 0
    topic.aging = False
    if topic.exiting or not topic.limits.watched or topic.direct:
        return False
    topic.clock.refresh()
    while left and topic.limits.trims and topic_exceeds(topic, 0, 0) and drop_oldest(topic):
        topic.overflow_count += 1
        left -= 1
    while left and topic.limits.message_ttl_ns:
        oldest_ns = dated_ns(topic.clock, topic.backlog.oldest_ns(&attempts))
        if not 0 < oldest_ns <= topic.clock.wall - topic.limits.message_ttl_ns or not drop_oldest(topic):
            break
        topic.expired_count += 1
        left -= 1
    topic.aging = topic.backlog.depth() > 0
    if not topic.aging:
        flow_refresh(topic)
    return left == 0


cdef bint drop_oldest(TopicState topic) noexcept:
    cdef Entry entry
    if not topic.backlog.pop(&entry):
        return False
    message_unref(entry.message)
    topic.backlog.done(topic.backlog.place)
    return True
