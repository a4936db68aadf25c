"""Cursors at the start. See the .pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from nsqc.store.log.offsets cimport Range, Waiting, Walk, offsets_add, offsets_next, waiting_next
from nsqc.store.log.segments cimport segments_find
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.log.uses cimport use_add
from nsqc.store.log.waiting cimport Deferred, Requeued, deferred_push, requeued_push


cdef int cursor_restore(Cursor cursor, CursorState *state) except -1:
    cdef Walk walk
    cdef Range *skip
    cursor.log.clock.refresh()
    memset(&walk, 0, sizeof(walk))
    while True:
        skip = offsets_next(&state.skips, &walk)
        if skip is NULL:
            break
        if offsets_add(&cursor.skips, skip.first, skip.end) < 0:
            raise MemoryError
    return restore_out(cursor, state)


cdef int restore_out(Cursor cursor, CursorState *state) except -1:
    """What is unfinished: it waits first, by offset, or for its time."""
    cdef Walk ranges, entries
    cdef Range *out
    cdef Waiting *waiting
    cdef int64_t offset, first = cursor.log.first_offset()
    memset(&ranges, 0, sizeof(ranges))
    memset(&entries, 0, sizeof(entries))
    out = offsets_next(&state.out, &ranges)
    waiting = waiting_next(&state.waiting, &entries)
    offset = out.first if out is not NULL else 0
    while out is not NULL or waiting is not NULL:
        if out is not NULL and (waiting is NULL or offset < waiting.offset):
            wait_again(cursor, offset, first, 1, 0)
            offset += 1
            if offset == out.end:
                out = offsets_next(&state.out, &ranges)
                offset = out.first if out is not NULL else 0
        else:
            wait_again(cursor, waiting.offset, first, waiting.attempts,
                       due_again(cursor, waiting) if waiting.due_ns > cursor.log.clock.wall else 0)
            waiting = waiting_next(&state.waiting, &entries)
    return 0


cdef int64_t due_again(Cursor cursor, Waiting *waiting) noexcept:
    """The monotonic time that it waits for: if the clock has jumped, one full delay at most, which is noted."""
    cdef TopicLog log = cursor.log
    cdef int64_t due_ns = log.clock.monotonic + min(waiting.due_ns - log.clock.wall, log.longest_delay_ns), asked_ns
    if waiting.attempts == 0:
        asked_ns = log.delay_of(waiting.offset)
        if asked_ns:
            due_ns = min(due_ns, asked_ns)
    if due_ns - log.clock.monotonic < waiting.due_ns - log.clock.wall:
        cursor._record_req(waiting.offset, waiting.attempts, due_ns - log.clock.monotonic + log.clock.wall)
    return due_ns


cdef int wait_again(Cursor cursor, int64_t offset, int64_t first, uint32_t attempts, int64_t due_ns) except -1:
    cdef Requeued item
    cdef Deferred deferred
    cdef int64_t index = segments_find(&cursor.log.segments, offset)
    if index < 0 or offset >= cursor.log.segments.items[index].end:
        return 0        # it is not in the log any more, or never got there
    if due_ns:
        deferred.due_ns = due_ns
        deferred.offset = offset
        deferred.attempts = attempts
        if deferred_push(&cursor.deferred, &deferred) < 0:
            raise MemoryError
    else:
        item.offset = offset
        item.after = 0
        item.attempts = attempts
        if requeued_push(&cursor.requeued, &item) < 0:
            raise MemoryError
    if not use_add(&cursor.uses, &cursor.log.segments, offset):
        raise MemoryError
    return 0
