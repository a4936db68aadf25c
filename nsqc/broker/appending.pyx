"""Publishing to a log. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy

from nsqc.broker.topicstate cimport Batch, OpenBatch, TopicState
from nsqc.store.backlog cimport PUT_DISK, PUT_EXITING, PUT_MEMORY, PUT_NO_MEMORY, PUT_NO_SPACE
from nsqc.store.fifo cimport Entry, fifo_pop
from nsqc.store.log.buffer cimport Buffer, buffer_free, buffer_room
from nsqc.store.message cimport message_unref
from nsqc.store.slices cimport SIZE_SHIFT, STEPS
from nsqc.wire.hton cimport load_i32, store_i32

cdef enum:
    SIZE_BYTES = 4              # before each message of a batch
    AT_ONCE = 1048576           # bytes of a batch that are appended in one step


cdef inline const char *next_line(const char *c_at, const char *c_end) noexcept:
    """The next line that is not empty, or the end."""
    while c_at < c_end and c_at[0] == c"\n":
        c_at += 1
    return c_at


cdef inline const char *line_end(const char *c_at, const char *c_end) noexcept:
    cdef const char *c_feed = <const char *> memchr(c_at, c"\n", c_end - c_at)
    return c_feed if c_feed is not NULL else c_end


cdef inline int refusal(TopicState topic) noexcept:
    """PUT_DISK: it accepts messages."""
    if topic.space.low or topic.log_full:
        return PUT_NO_SPACE
    return PUT_EXITING if topic.exiting else PUT_DISK


cdef int append(TopicState topic, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept:
    cdef int result = refusal(topic)
    if result != PUT_DISK:
        return result
    if topic.log.append(topic.clock.wall, c_body, size, defer_ms, NULL, 0) < 0:
        return PUT_NO_MEMORY
    topic.message_count += 1
    topic.message_bytes += size
    return PUT_DISK


cdef int append_dead(TopicState topic, const char *c_body, uint32_t size, const char *c_origin,
                     uint32_t origin_size) noexcept:
    cdef int result = refusal(topic)
    if result != PUT_DISK:
        return result
    if topic.log.append(topic.clock.wall, c_body, size, 0, c_origin, origin_size) < 0:
        return PUT_NO_MEMORY
    topic.message_count += 1
    topic.message_bytes += size
    return PUT_DISK


cdef int append_whole(TopicState topic, const char *c_payload, int64_t length, int64_t records,
                      uint32_t defer_ms) noexcept:
    """All messages of a batch; PutResult."""
    cdef int result = refusal(topic)
    if result != PUT_DISK:
        return result
    if topic.log.append_batch(topic.clock.wall, c_payload, length, records, defer_ms) < 0:
        return PUT_NO_MEMORY
    topic.message_count += <uint64_t> records
    topic.message_bytes += <uint64_t> (length - records * SIZE_BYTES)
    return PUT_DISK


cdef bint append_slice(TopicState topic, Batch *batch) noexcept:
    cdef const char *c_at = batch.c_at
    cdef int64_t count
    batch.result = refusal(topic)
    if batch.result == PUT_DISK and batch.gathered is NULL:
        count = step(&c_at, batch.left)
        if count == batch.left and batch.staged.records == 0:
            batch.result = append_whole(topic, batch.c_at, c_at - batch.c_at, count, batch.defer_ms)
            batch.c_at = c_at
            batch.left = 0
            return True
    while batch.left > 0 and batch.result == PUT_DISK:
        if batch.gathered is NULL:
            batch.result = stage_some(batch)
        else:
            batch.result = stage_gathered(batch)
        if batch.left > 0 and batch.result == PUT_DISK and topic.slicer.over():
            return False
    if batch.result == PUT_DISK:
        batch.result = append_whole(topic, batch.staged.c_data, batch.staged.length, batch.staged.records,
                                    batch.defer_ms)
    buffer_free(batch.staged)
    batch.left = 0
    return True


cdef int64_t step(const char **c_at, int64_t most) noexcept:
    """Passes the messages of one step: how many."""
    cdef const char *c_from = c_at[0]
    cdef int64_t count = 0
    while count < most and c_at[0] - c_from < AT_ONCE:
        c_at[0] += SIZE_BYTES + <int64_t> load_i32(c_at[0])
        count += 1
    return count


cdef int stage_some(Batch *batch) noexcept:
    cdef const char *c_from = batch.c_at
    cdef int64_t count = step(&batch.c_at, batch.left), length = batch.c_at - c_from
    if buffer_room(batch.staged, length) < 0:
        return PUT_NO_MEMORY
    memcpy(batch.staged.c_data + batch.staged.length, c_from, <size_t> length)
    batch.staged.length += length
    batch.staged.records += count
    batch.left -= <int> count
    return PUT_DISK


cdef int stage_gathered(Batch *batch) noexcept:
    cdef Entry entry
    cdef int steps = STEPS, result = PUT_DISK
    while batch.left > 0 and steps > 0 and result == PUT_DISK:
        fifo_pop(batch.gathered, &entry)
        result = stage(batch.staged, entry.message.body, entry.message.size)
        steps -= 1 + <int> (entry.message.size >> SIZE_SHIFT)
        message_unref(entry.message)
        batch.left -= 1
    return result


cdef inline int stage(Buffer *staged, const char *c_body, uint32_t size) noexcept:
    cdef char *c_to
    if buffer_room(staged, SIZE_BYTES + <int64_t> size) < 0:
        return PUT_NO_MEMORY
    c_to = staged.c_data + staged.length
    store_i32(c_to, <int> size)
    memcpy(c_to + SIZE_BYTES, c_body, size)
    staged.length += SIZE_BYTES + <int64_t> size
    staged.records += 1
    return PUT_DISK


cdef const char *append_lines(TopicState topic, const char *c_at, const char *c_end, OpenBatch batch,
                              uint32_t defer_ms, int *result) noexcept:
    cdef int steps = STEPS
    cdef const char *c_feed
    cdef const char *c_next = next_line(c_at, c_end)
    result[0] = refusal(topic)
    while c_next < c_end and result[0] == PUT_DISK:
        c_at = c_next
        c_feed = line_end(c_at, c_end)
        c_next = next_line(c_feed, c_end)
        result[0] = stage(&batch.staged, c_at, <uint32_t> (c_feed - c_at))
        steps -= 1 + <int> ((c_feed - c_at) >> SIZE_SHIFT)
        if steps <= 0 and result[0] == PUT_DISK:
            steps = STEPS
            if c_next < c_end and topic.slicer.over():
                result[0] = PUT_MEMORY
                return c_next
    if result[0] == PUT_DISK:
        result[0] = (append_whole(topic, batch.staged.c_data, batch.staged.length, batch.staged.records, defer_ms)
                     if batch.staged.records else PUT_MEMORY)
    buffer_free(&batch.staged)
    return c_end
