"""Publishing to a log. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memchr

from nsqc.broker.topicstate cimport Batch, OpenBatch, TopicState
from nsqc.store.backlog cimport PUT_DISK, PUT_EXITING, PUT_MEMORY, PUT_NO_MEMORY, PUT_NO_SPACE
from nsqc.store.disk.segment cimport HEAD_BYTES
from nsqc.store.fifo cimport Entry, fifo_pop
from nsqc.store.log.jobs cimport LogBuf, buf_free
from nsqc.store.message cimport message_unref
from nsqc.store.slices cimport SIZE_SHIFT, STEPS
from nsqc.wire.hton cimport load_i32

cdef enum:
    SIZE_BYTES = 4              # before each message of a batch


cdef inline const char *next_line(const char *c_at, const char *c_end) noexcept:
    """The next line that is not empty, or the end."""
    while c_at < c_end and c_at[0] == c"\n":
        c_at += 1
    return c_at


cdef inline const char *line_end(const char *c_at, const char *c_end) noexcept:
    cdef const char *c_feed = <const char *> memchr(c_at, c"\n", c_end - c_at)
    return c_feed if c_feed is not NULL else c_end


cdef int append(TopicState topic, const char *c_body, uint32_t size, uint32_t defer_ms, bint more) noexcept:
    cdef char c_id[16]
    if topic.space.low or topic.log_full:
        return PUT_NO_SPACE
    if topic.exiting:
        return PUT_EXITING
    topic.guids.next(topic.clock.wall, c_id)
    if topic.log.append(c_id, topic.clock.wall, c_body, size, defer_ms, more) < 0:
        return PUT_NO_MEMORY
    topic.message_count += 1
    topic.message_bytes += size
    return PUT_DISK


cdef bint append_slice(TopicState topic, Batch *batch) noexcept:
    cdef int64_t length = topic.log.out.length, records = topic.log.out.records, size
    cdef int result = PUT_DISK, steps = STEPS
    cdef Entry entry
    while batch.left > 0 and result == PUT_DISK:
        if batch.gathered is NULL:
            size = load_i32(batch.c_at)
            result = append(topic, batch.c_at + SIZE_BYTES, <uint32_t> size, 0, batch.left > 1)
            batch.c_at += SIZE_BYTES + size
        else:
            fifo_pop(batch.gathered, &entry)
            size = entry.message.size
            result = append(topic, entry.message.body, entry.message.size, 0, batch.left > 1)
            message_unref(entry.message)
        batch.left -= 1
        steps -= 1 + <int> (size >> SIZE_SHIFT)
        if steps <= 0 and result == PUT_DISK:
            steps = STEPS
            if batch.left > 0 and topic.slicer.over():
                if topic.log.stage(length, records, batch.staged) == 0:
                    return False
                result = PUT_NO_MEMORY
    batch.result = complete(topic, length, records, batch.staged, result)
    batch.left = 0
    return True


cdef int complete(TopicState topic, int64_t length, int64_t records, LogBuf *staged, int result) noexcept:
    """The last slice of a batch, which began at a mark in the log's buffer: publishes all of it, or nothing."""
    cdef int64_t count, size
    if result == PUT_DISK:
        if staged.records == 0:
            return result
        if topic.log.stage(length, records, staged) == 0 and topic.log.unstage(staged) == 0:
            return result
        result = PUT_NO_MEMORY
    count = staged.records + topic.log.out.records - records
    size = staged.length + topic.log.out.length - length
    topic.log.take_back(length, records)
    buf_free(staged)
    topic.message_count -= <uint64_t> count
    topic.message_bytes -= <uint64_t> (size - count * HEAD_BYTES)
    topic.taken_count += <uint64_t> count
    topic.taken_bytes += <uint64_t> (size - count * HEAD_BYTES)
    return result


cdef const char *append_lines(TopicState topic, const char *c_at, const char *c_end, OpenBatch batch,
                              int *result) noexcept:
    cdef int64_t length = topic.log.out.length, records = topic.log.out.records
    cdef int steps = STEPS
    cdef const char *c_feed
    cdef const char *c_next = next_line(c_at, c_end)
    result[0] = PUT_MEMORY if c_next == c_end else PUT_DISK
    while c_next < c_end and result[0] == PUT_DISK:
        c_at = c_next
        c_feed = line_end(c_at, c_end)
        c_next = next_line(c_feed, c_end)
        result[0] = append(topic, c_at, <uint32_t> (c_feed - c_at), 0, c_next < c_end)
        steps -= 1 + <int> ((c_feed - c_at) >> SIZE_SHIFT)
        if steps <= 0 and result[0] == PUT_DISK:
            steps = STEPS
            if c_next < c_end and topic.slicer.over():
                if topic.log.stage(length, records, &batch.staged) == 0:
                    result[0] = PUT_MEMORY
                    return c_next
                result[0] = PUT_NO_MEMORY
    if result[0] != PUT_MEMORY:
        result[0] = complete(topic, length, records, &batch.staged, result[0])
    return c_end
