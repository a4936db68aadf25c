"""Channels at their limits. See the .pxd."""

from libc.stdint cimport INT64_MAX, int64_t

from nsqc.broker.channelrules cimport OVERFLOW_DIE, ChannelRules
from nsqc.broker.dead cimport OVERFLOWED, dead_has_room
from nsqc.broker.expiry cimport LOOK_NS, Taken, leave_taken, take_oldest
from nsqc.store.delivery cimport delivery_reserve
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.log.segmenthead cimport FRAMES_AT
from nsqc.store.log.segments cimport Segment, segments_find
from nsqc.store.slices cimport STEPS


cdef bint exceeds(int64_t depth, int64_t waiting, int64_t count, int64_t body_bytes, int64_t max_depth,
                  int64_t max_bytes) noexcept:
    return 0 < max_depth < depth + count or 0 < max_bytes < waiting + body_bytes


cdef int64_t cursor_bytes(Cursor cursor) noexcept:
    """Bytes of the undelivered records; the first segment counts by its share of undelivered ones."""
    cdef int64_t index = segments_find(&cursor.log.segments, cursor.next), size
    cdef Segment *segment
    if index < 0 or cursor.next >= cursor.log.visible:
        return 0
    segment = &cursor.log.segments.items[index]
    size = (segment.position - FRAMES_AT) * (segment.end - min(cursor.next, segment.end)) // max(
        segment.end - segment.first, 1)
    for index in range(index + 1, cursor.log.segments.count):
        size += cursor.log.segments.items[index].position - FRAMES_AT
    return size


cdef int64_t channel_bytes(ChannelState channel) noexcept:
    return channel.backlog.bytes() + (cursor_bytes(channel.cursor) if channel.cursor is not None else 0)


cdef bint channel_exceeds(ChannelState channel, int64_t count, int64_t body_bytes) noexcept:
    cdef ChannelRules *rules = channel.rules
    return exceeds(channel.count_waiting() if rules.max_depth else 0, channel_bytes(channel) if rules.max_bytes else 0,
                   count, body_bytes, rules.max_depth, rules.max_bytes)


cdef bint trim_channel(ChannelState channel) noexcept:
    cdef int64_t oldest_ns
    cdef int steps = STEPS
    cdef Taken taken
    if not channel.rules.trims:
        return True
    if channel.cursor is not None and channel.cursor.log.delays.count:
        # Deferred messages that no consumer has reached become due without any event.
        channel.look_ns = min(channel.look_ns, channel.clock.monotonic + LOOK_NS)
    while channel_exceeds(channel, 0, 0):
        if channel.rules.overflow == OVERFLOW_DIE and not (delivery_reserve() and dead_has_room(channel)):
            return True         # until dead letters are published
        if not take_oldest(channel, INT64_MAX, &taken, &oldest_ns):
            return True         # until the block is read
        leave_taken(channel, &taken, OVERFLOWED)
        steps -= 1
        if steps == 0:
            if channel.slicer.over():
                return False
            steps = STEPS
    return True
