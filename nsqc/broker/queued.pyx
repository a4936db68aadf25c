"""Queues in memory and on disk. See the .pxd."""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint32_t

from nsqc.broker.bounds cimport topic_waits
from nsqc.broker.channel cimport Channel
from nsqc.broker.channelstate cimport unlikely
from nsqc.broker.flow cimport flow_drop_leftover, flow_drop_places, flows
from nsqc.broker.openbatch cimport SIZE_BYTES, OpenBatch, Part, batch_next
from nsqc.broker.publishonce cimport once_wrote
from nsqc.broker.topicstate cimport TopicState
from nsqc.store.backlog cimport (PUT_DISK, PUT_EXITING, PUT_MEMORY, PUT_NO_MEMORY, PUT_NO_SPACE, is_refused)
from nsqc.store.fifo cimport Entry
from nsqc.store.log.buffer cimport buffer_free
from nsqc.store.message cimport Message, message_new, message_ref, message_unref
from nsqc.store.slices cimport SIZE_SHIFT, STEPS
from nsqc.wire.hton cimport load_i32


cdef bint fits(TopicState topic, uint32_t defer_ms) noexcept:
    """Whether a message would stay in memory."""
    cdef Channel channel
    if not topic.direct:
        return topic.backlog.fits(defer_ms)
    for channel in topic.fan:
        if not channel.fits(defer_ms):
            return False
    return True


cdef inline int fan_out(TopicState topic, Message *message, uint32_t defer_ms) noexcept:
    cdef Channel channel
    cdef int put, result = PUT_MEMORY
    for channel in topic.fan:
        message_ref(message)
        put = channel.put_deferred(message, 0, defer_ms) if defer_ms else channel.put(message, 0)
        if put == PUT_NO_MEMORY:
            message_unref(message)
            result = put
        elif put == PUT_DISK and result != PUT_NO_MEMORY:
            result = put
    if result != PUT_NO_MEMORY:
        message_unref(message)
    return result


cdef inline int put_message(TopicState topic, Message *message, uint32_t defer_ms) noexcept:
    """Takes the reference."""
    cdef uint32_t size = message.size
    cdef int result
    if topic.space.low and not fits(topic, defer_ms):
        result = PUT_NO_SPACE
    elif topic.direct:
        result = fan_out(topic, message, defer_ms)
    else:
        topic.allowance -= 1
        result = topic.backlog.put(message, 0, defer_ms, False, NULL)
        if unlikely(topic.limits.watched):
            topic_waits(topic)
    if is_refused(result):
        message_unref(message)
    else:
        topic.message_count += 1
        topic.message_bytes += size
    return result


cdef inline int put_body(TopicState topic, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept:
    cdef char c_id[16]
    cdef Message *message
    if unlikely(topic.guids.is_short()):
        return PUT_NO_SPACE
    topic.guids.next(topic.clock.wall, c_id)
    message = message_new(c_id, topic.clock.wall, c_body, size)
    return PUT_NO_MEMORY if message is NULL else put_message(topic, message, defer_ms)


cdef inline int put_part(TopicState topic, const Part *part, uint32_t defer_ms) noexcept:
    if part.message is NULL:
        return put_body(topic, part.c_body, part.size, defer_ms)
    if unlikely(topic.guids.is_short()):
        message_unref(part.message)
        return PUT_NO_SPACE
    topic.guids.next(topic.clock.wall, part.message.id)
    part.message.timestamp_ns = topic.clock.wall
    return put_message(topic, part.message, defer_ms)


cdef void put_staged(TopicState topic, OpenBatch batch) noexcept:
    """The topic's rule said log when the batch began, so its first messages are staged for a log."""
    cdef int64_t at = 0, size
    cdef int put
    while at < batch.staged.length and not is_refused(batch.result):
        size = load_i32(batch.staged.c_data + at)
        put = put_body(topic, batch.staged.c_data + at + SIZE_BYTES, <uint32_t> size, batch.defer_ms)
        if put == PUT_DISK or is_refused(put):
            batch.result = put
        at += SIZE_BYTES + size
    buffer_free(&batch.staged)


@cython.final
cdef class Queued(Storage):
    """The queues of a topic and its channels."""

    cdef int put(self, TopicState topic, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                 uint32_t origin_size) noexcept:
        return put_body(topic, c_body, size, defer_ms)

    cdef bint put_batch(self, TopicState topic, OpenBatch batch) noexcept:
        # 64 bits: a large message may go to many channels.
        cdef int64_t cost = 1 + topic.fan_count, left = STEPS
        cdef int put
        cdef Part part
        if topic.exiting:
            return batch.end_with(PUT_EXITING, topic.slicer)
        if batch.staged.records:
            put_staged(topic, batch)
        while batch.more() and not is_refused(batch.result):
            batch_next(batch, &part)
            left -= cost + (cost - (part.message is not NULL)) * <int64_t> (part.size >> SIZE_SHIFT)
            put = put_part(topic, &part, batch.defer_ms)
            if put == PUT_DISK or is_refused(put):
                batch.result = put
            if left <= 0:
                if batch.more() and (topic.slicer.over() or topic.commit.is_full()):
                    break
                left = STEPS
        once_wrote(&batch.once, batch.result)
        if batch.more() and not is_refused(batch.result):
            return False
        return batch.end_with(batch.result, topic.slicer)

    cdef bint lags(self, TopicState topic) noexcept:
        return not topic.direct and topic.allowance <= 0 and flows(topic)

    cdef object write_path(self, TopicState topic):
        return topic.backlog.disk.write_path

    cdef int64_t depth(self, TopicState topic) noexcept:
        return topic.backlog.depth() + (topic.leftover.message is not NULL)

    cdef int64_t disk_depth(self, TopicState topic) noexcept:
        return topic.backlog.disk_depth()

    cdef void empty(self, TopicState topic) noexcept:
        flow_drop_leftover(topic)
        flow_drop_places(topic)
        topic.backlog.empty()

    cdef int delete(self, TopicState topic) except -1:
        flow_drop_leftover(topic)
        flow_drop_places(topic)
        topic.backlog.delete()
        return 0

    cdef int64_t close(self, TopicState topic, bint written) except -1:
        cdef int64_t waiting
        cdef Entry left
        if topic.backlog.disk is None:
            return 0
        if topic.leftover.message is not NULL:
            # Channels that already have it get it again; otherwise the others would never get it.
            left = topic.leftover
            message_ref(left.message)
            topic.backlog.put(left.message, left.attempts, left.defer_ms, True, NULL)
            flow_drop_leftover(topic)
        waiting = topic.backlog.spill()
        if written:
            topic.backlog.disk.done_before(INT64_MAX)
        topic.backlog.close()
        return waiting
