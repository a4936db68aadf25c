"""Publishing to a log. See the .pxd."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from nsqc.broker.channel cimport Channel
from nsqc.broker.logged cimport close_log, empty_log, give_cursor, hold_log, log_depth, unhold_log
from nsqc.broker.openbatch cimport GATHERED, SIZE_BYTES, SIZED, OpenBatch, Part, batch_next
from nsqc.broker.topicstate cimport Storage, TopicState
from nsqc.store.backlog cimport PUT_DISK, PUT_EXITING, PUT_MEMORY, PUT_NO_MEMORY, PUT_NO_SPACE
from nsqc.store.log.buffer cimport Buffer, buffer_room
from nsqc.store.message cimport message_unref
from nsqc.store.seams cimport StoreOwner
from nsqc.store.slices cimport SIZE_SHIFT, STEPS
from nsqc.wire.hton cimport store_i32

cdef enum:
    AT_ONCE = 1048576           # bytes of a batch to append in one step


cdef inline int refusal(TopicState topic) noexcept:
    """PUT_DISK: the log accepts messages."""
    if topic.space.low or topic.log_full or topic.guids.is_short():
        return PUT_NO_SPACE
    return PUT_EXITING if topic.exiting else PUT_DISK


cdef inline int appended(TopicState topic, int failed, int64_t records, int64_t body_bytes) noexcept:
    """Counts messages, if they were added to the next write; PutResult."""
    if failed < 0:
        return PUT_NO_MEMORY
    topic.message_count += <uint64_t> records
    topic.message_bytes += <uint64_t> body_bytes
    return PUT_DISK


cdef inline int append_whole(TopicState topic, const char *c_payload, int64_t length, int64_t records,
                             uint32_t defer_ms) noexcept:
    """Adds messages in size-prefixed form."""
    return appended(topic, topic.log.append_batch(topic.clock.wall, c_payload, length, records, defer_ms), records,
                    length - records * SIZE_BYTES)


cdef int stage(OpenBatch batch) noexcept:
    """Copies some messages; PUT_DISK, or PUT_NO_MEMORY."""
    cdef Part part
    cdef Buffer *staged = &batch.staged
    cdef char *c_to
    cdef int64_t length, steps = STEPS
    cdef int result = PUT_DISK
    while batch.more() and steps > 0 and result == PUT_DISK:
        batch_next(batch, &part)
        steps -= 1 + <int64_t> (part.size >> SIZE_SHIFT)
        length = SIZE_BYTES + <int64_t> part.size
        if length > staged.room - staged.length and buffer_room(staged, length) < 0:
            result = PUT_NO_MEMORY
        else:
            c_to = staged.c_data + staged.length
            store_i32(c_to, <int> part.size)
            memcpy(c_to + SIZE_BYTES, part.c_body, part.size)
            staged.length += length
            staged.records += 1
        if part.message is not NULL:
            message_unref(part.message)
    return result


@cython.final
cdef class Logged(Storage):
    """The log of a topic."""

    cdef int put(self, TopicState topic, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                 uint32_t origin_size) noexcept:
        cdef int result = refusal(topic)
        if result != PUT_DISK:
            return result
        return appended(topic, topic.log.append(topic.clock.wall, c_body, size, defer_ms, c_origin, origin_size), 1,
                        size)

    cdef bint put_batch(self, TopicState topic, OpenBatch batch) noexcept:
        cdef Part part
        cdef int result = refusal(topic)
        if result != PUT_DISK:
            return batch.refuse(result)
        if batch.staged.records == 0:
            if batch.source == SIZED and batch.end - batch.at <= AT_ONCE:
                result = append_whole(topic, batch.c_data + batch.at, batch.end - batch.at, batch.count,
                                      batch.defer_ms)
                return batch.end_with(result, topic.slicer)
            if batch.source == GATHERED and batch.end - batch.at == 1:
                batch_next(batch, &part)
                result = self.put(topic, part.c_body, part.size, batch.defer_ms, NULL, 0)
                message_unref(part.message)
                return batch.end_with(result, topic.slicer)
        while batch.more() and result == PUT_DISK:
            result = stage(batch)
            if batch.more() and result == PUT_DISK and topic.slicer.over():
                return False
        if result == PUT_DISK:
            result = PUT_MEMORY if batch.staged.records == 0 else append_whole(
                topic, batch.staged.c_data, batch.staged.length, batch.staged.records, batch.defer_ms)
        return batch.end_with(result, topic.slicer)

    cdef object write_path(self, TopicState topic):
        return topic.log.write_path

    cdef int64_t depth(self, TopicState topic) noexcept:
        return log_depth(topic)

    cdef int64_t disk_depth(self, TopicState topic) noexcept:
        return max(log_depth(topic) - topic.backlog.max_memory, <int64_t> 0)

    cdef void empty(self, TopicState topic) noexcept:
        empty_log(topic)

    cdef int add_channel(self, TopicState topic, StoreOwner channel, start) except -1:
        return give_cursor(topic, <Channel> channel, start)

    cdef void channel_gone(self, TopicState topic) noexcept:
        if not topic.channels and not topic.log.held:
            topic.place.move(topic.log.visible)

    cdef void pause(self, TopicState topic) noexcept:
        hold_log(topic)

    cdef void unpause(self, TopicState topic) noexcept:
        unhold_log(topic)

    cdef int delete(self, TopicState topic) except -1:
        topic.log.delete()
        return 0

    cdef int64_t close(self, TopicState topic, bint written) except -1:
        close_log(topic)
        return 0
