"""Log-backed topics. See the .pxd."""

import os

from libc.stdint cimport int64_t, uint64_t

from nsqc.broker.channel cimport Channel
from nsqc.broker.flow cimport flow_refresh
from nsqc.broker.settled cimport restore_settled
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.log.earlier cimport TopicPlace, new_cursor
from nsqc.store.log.segments cimport segments_rank


cdef int64_t ranks_between(TopicLog log, int64_t begin, int64_t end) noexcept:
    """Records from one offset up to another; below 0 if they are in reverse order."""
    return segments_rank(&log.segments, end) - segments_rank(&log.segments, begin)


cdef int attach_log(TopicState topic, TopicLog log, Earlier earlier, rule) except -1:
    cdef Channel channel
    cdef object place = earlier.topic_cursor if earlier is not None else None
    topic.log = log
    log.owner = topic
    log.commit = topic.commit
    topic.earlier = earlier
    topic.place = TopicPlace(log, log.first_offset() if place is None else min(<int64_t> place, log.next))
    restore_settled(topic)
    for channel in topic.fan:
        give_cursor(topic, channel, log.next)
    follow_rule(topic, rule)
    if topic.paused:
        hold_log(topic)
    elif not topic.started:
        log.hold(log.next)      # for channels that do not exist yet
    return 0


cdef int follow_rule(TopicState topic, rule) except -1:
    cdef Channel channel
    topic.rule = rule
    topic.logs = rule.storage == "log"
    topic.log.syncs = rule.sync == "fsync"
    topic.most_bytes = rule.retain_bytes
    for channel in topic.fan:
        channel.log_first = not topic.logs
    topic.storage_changed()
    flow_refresh(topic)
    return 0


cdef int give_cursor(TopicState topic, Channel channel, start) except -1:
    cdef Cursor cursor = None
    cdef int64_t begin
    if topic.earlier is not None and not channel.ephemeral:
        cursor = topic.earlier.cursor(topic.log, channel.name, channel)
    if cursor is None:
        if start is not None:
            begin = start
        elif topic.earlier is not None and topic.earlier.damaged:
            begin = 0       # its position is unknown: it reads everything
        else:
            begin = topic.log.visible if topic.channels and topic.started else topic.place.next
        begin = min(max(begin, topic.log.first_offset()), topic.log.next)
        cursor = new_cursor(topic.log, channel.name, channel, channel.ephemeral, begin)
        channel.counts.message_count += <uint64_t> max(0, ranks_between(topic.log, begin, topic.log.visible))
    channel.set_cursor(cursor, not topic.logs)
    return 0


cdef void log_grew(TopicState topic, int64_t records) noexcept:
    cdef Channel channel
    if topic.log.segments.count != topic.segment_count or topic.log.delays.count:
        topic.segment_count = topic.log.segments.count
        topic.owner.on_aging(topic)
    if 0 < topic.most_bytes <= topic.log.segments.bytes and not topic.log_full:
        retain_log(topic)
    if topic.log.held:
        return
    topic.clock.refresh()
    topic.slicer.begin(topic.clock.monotonic)
    for channel in topic.fan:
        channel.on_grown(records)


cdef void hold_log(TopicState topic) noexcept:
    if topic.started and topic.channels and not topic.log.held:
        topic.place.move(topic.log.visible)
    topic.log.hold(topic.place.next)


cdef void unhold_log(TopicState topic) noexcept:
    cdef Channel channel
    cdef int64_t before
    if not topic.log.held:
        return
    before = topic.log.visible
    topic.log.unhold()
    topic.clock.refresh()
    topic.slicer.begin_within(topic.clock.monotonic)
    for channel in topic.fan:
        # A channel created meanwhile may begin later.
        channel.on_grown(max(0, ranks_between(topic.log, max(before, channel.cursor.next), topic.log.visible)))


cdef void empty_log(TopicState topic) noexcept:
    cdef Channel channel
    if topic.log.held:
        for channel in topic.fan:
            channel.cursor.skip(topic.log.visible, topic.log.next)
        topic.log.hold(topic.log.next)
        topic.place.move(topic.log.next)
    elif not topic.channels:
        topic.place.move(topic.log.next)


cdef int64_t log_depth(TopicState topic) noexcept:
    cdef int64_t begin = topic.log.visible if topic.channels and topic.log.held else topic.place.next
    if topic.channels and not topic.log.held:
        return 0
    return ranks_between(topic.log, begin, topic.log.next)


cdef bint retain_log(TopicState topic) except -1:
    cdef int64_t needed = needed_from(topic)
    cdef bint drops = topic.rule.overflow == "drop-oldest"
    # A log that is kept, without its own limit, is kept whole.
    if not topic.rule.keeps_log or topic.rule.retain_time > 0 or topic.most_bytes > 0:
        topic.log.retain(needed, topic.rule.retain_time, topic.rule.retain_bytes, drops)
    set_full(topic, topic.logs and not drops and 0 < topic.most_bytes <= topic.log.segments.bytes
             and topic.log.segments.items[0].end > needed)
    if not topic.logs and not (topic.rule.keeps_log and topic.log.first_offset() < topic.log.next):
        return not drop_log(topic)
    return topic.log_full or topic.log.segments.count > 1


cdef bint drop_log(TopicState topic) except -1:
    if topic.logs or needed_from(topic) < topic.log.next or topic.log.unwritten_records() > 0 or topic.log.busy:
        return False
    leave_log(topic)
    return True


cdef int64_t needed_from(TopicState topic) except -1:
    cdef Channel channel
    cdef int64_t needed = topic.log.next
    if topic.earlier is not None or not topic.channels or topic.log.held:
        needed = min(needed, topic.place.next)
    for channel in topic.fan:
        if channel.cursor is not None:
            needed = min(needed, channel.cursor.needed_from())
    return needed


cdef int set_full(TopicState topic, bint full) except -1:
    if full != topic.log_full:
        topic.log_full = full
        topic.full_reason = ("" if not full else
                             f"the log is full: it has {topic.log.bytes} bytes, retain_bytes is {topic.most_bytes}")
        topic.owner.on_log_full(topic, full)
    return 0


cdef int leave_log(TopicState topic) except -1:
    """Deletes the log: the topic is in memory now, and all messages of the log are finished."""
    cdef Channel channel
    cdef TopicLog log = topic.log
    for channel in topic.fan:
        channel.set_cursor(None, False)
    topic.log = None
    topic.place = None
    topic.settled = None
    topic.storage_changed()
    log.delete()
    topic.owner.on_log_left(topic, log)
    return 0


cdef int close_log(TopicState topic) except -1:
    cdef int64_t lost
    cdef int error
    if topic.log.unwritten_records() > 0:
        topic.commit.run()
    lost = topic.log.unwritten_records()
    # A refused publish is not lost: its client is notified.
    error = topic.log.errno if lost else topic.log.recorder.error
    path = topic.log.write_path
    topic.log.close()
    if error:
        raise OSError(error, f"{os.strerror(error)}: {lost} messages are lost", path)
    return 0
