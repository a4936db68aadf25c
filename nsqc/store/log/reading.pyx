"""Records of a segment for those who read logs by offset or time. For Python: see the .pyi.

What takes time runs without the GIL.
"""

import os
from collections import namedtuple

from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from nsqc.store.disk.segment cimport HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_ID_AT, RECORD_TIMESTAMP_AT
from nsqc.store.guid cimport guid_after, guid_write
from nsqc.store.log.frame cimport RECORD_SIZE, record_length
from nsqc.store.log.index cimport Index, IndexEntry, index_before, index_free, index_read
from nsqc.store.log.jsonlines cimport Text, line_bytes, put_line
from nsqc.store.log.read cimport Spot, position_of, spot_find
from nsqc.store.log.segmenthead cimport FRAMES_AT
from nsqc.store.log.walk cimport Walk, walk_data, walk_free, walk_next, walk_open
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.hton cimport store_i32, store_i64, store_u16

Run = namedtuple("Run", "first next start end last damaged lines")

cdef enum:
    HOP_BYTES = 4096            # of a read that wants a head
    READ_BYTES = 262144

cdef struct Bounds:             # of a segment
    int64_t first, end, position
    uint64_t salt

cdef struct Span:               # as Run
    int64_t first, next, start, end, last, damaged, lines


cdef Bounds bounds_of(segment) except *:
    cdef Bounds bounds
    bounds.first, bounds.end, bounds.position, bounds.salt = segment
    return bounds


cdef int raise_error(int error) except -1:
    raise OSError(error, os.strerror(error))


# ---------------------------------------------------------------------- runs

def find_run(int fd, segment, int64_t offset, int64_t position, int64_t max_messages, int64_t max_bytes,
             bint as_lines):
    """See the .pyi."""
    cdef Bounds bounds = bounds_of(segment)
    cdef Walk walk
    cdef Span found
    cdef int answer
    with nogil:
        answer = go_to(&walk, fd, &bounds, offset, position)
        if answer == 1:
            answer = take_run(&walk, &bounds, offset, max_messages, max_bytes, as_lines, &found)
        elif answer == 0:
            memset(&found, 0, sizeof(found))
            found.first = found.next = bounds.end
            found.damaged = bounds.end - offset
        walk_free(&walk)
    if answer < 0:
        raise_error(-answer)
    return Run(found.first, found.next, found.start, found.end, found.last, found.damaged, found.lines)


cdef int go_to(Walk *walk, int fd, const Bounds *bounds, int64_t offset, int64_t position) noexcept nogil:
    """Walks to the first frame that has an offset or a later one: 1. 0: there is none. -errno."""
    cdef int answer
    if position == 0:
        position = FRAMES_AT if offset <= bounds.first else position_of(fd, bounds.salt, offset)
    walk_open(walk, fd, bounds.salt, position, bounds.position, bounds.first)
    walk.heads = True
    walk.step = HOP_BYTES
    while True:
        answer = walk_next(walk)
        if answer <= 0:
            return answer
        if walk.frame.first + walk.frame.records > offset:
            break
    walk.heads = False
    walk.step = READ_BYTES
    walk.next = walk.position
    walk.least = 0
    return walk_next(walk)


cdef int take_run(Walk *walk, const Bounds *bounds, int64_t offset, int64_t max_messages, int64_t max_bytes,
                  bint as_lines, Span *found) noexcept nogil:
    """The frames from the present one on. 1 or -errno."""
    cdef int64_t left = max_bytes, next_
    cdef int answer = 1
    memset(found, 0, sizeof(Span))
    found.first = found.next = max(offset, walk.frame.first)
    found.damaged = found.first - offset
    found.start = found.end = found.last = walk.position
    while answer == 1 and found.next < bounds.end:
        if found.end > found.start and (walk.frame.first != found.next
                                        or not as_lines and left < walk.frame.length):
            break       # damage, or enough
        next_ = min(walk.frame.first + walk.frame.records, bounds.end, found.first + max_messages)
        if as_lines:
            next_ = measure(walk, found, next_, &left)
        else:
            left -= walk.frame.length
        found.last = walk.position
        found.end = walk.next
        found.next = next_
        if next_ < walk.frame.first + walk.frame.records or next_ == found.first + max_messages or left <= 0:
            break
        answer = walk_next(walk)
    return 1 if answer >= 0 else answer


cdef int64_t measure(Walk *walk, Span *found, int64_t end, int64_t *left) noexcept nogil:
    """Adds the lines of a frame's records from found.next on; where it ends, because records are enough."""
    cdef const char *c_data = walk_data(walk)
    cdef const char *c_record
    cdef int64_t at = found.next
    cdef Spot spot
    memset(&spot, 0, sizeof(spot))
    while at < end:
        c_record = spot_find(&spot, c_data, at)
        if at > found.first and record_length(c_record) > left[0]:
            left[0] = 0
            break
        found.lines += line_bytes(&spot.frame, c_record, spot.index)
        left[0] -= record_length(c_record)
        at += 1
    return at


def lines(int fd, segment, run, int64_t offset, int64_t position, int64_t most):
    """See the .pyi."""
    cdef Bounds bounds = bounds_of(segment)
    cdef int64_t end = run.next, limit = run.end
    cdef Text text
    cdef int error
    memset(&text, 0, sizeof(text))
    with nogil:
        error = put_lines(fd, bounds.salt, &offset, &position, end, limit, most, &text)
    try:
        if error:
            raise_error(error)
        return text.c_data[:text.length], offset, position
    finally:
        free(text.c_data)


cdef int put_lines(int fd, uint64_t salt, int64_t *offset, int64_t *position, int64_t end, int64_t limit, int64_t most,
                   Text *text) noexcept nogil:
    """0 or errno."""
    cdef const char *c_data
    cdef const char *c_record
    cdef Walk walk
    cdef Spot spot
    cdef int error = 0
    walk_open(&walk, fd, salt, position[0], limit, 0)
    walk.step = READ_BYTES
    while error == 0 and offset[0] < end and text.length < most:
        error = walk_next(&walk)
        error = -error if error < 0 else EIO if error == 0 or walk.frame.first > offset[0] else 0
        if error:
            break
        position[0] = walk.position
        c_data = walk_data(&walk)
        memset(&spot, 0, sizeof(spot))
        while (error == 0 and offset[0] < min(end, walk.frame.first + walk.frame.records) and text.length < most):
            c_record = spot_find(&spot, c_data, offset[0])
            error = put_line(text, &spot.frame, c_record, spot.index)
            offset[0] += 1
        if offset[0] >= walk.frame.first + walk.frame.records:
            position[0] = walk.next
    walk_free(&walk)
    return error


# ---------------------------------------------------------------------- times

def first_at(int fd, segment, int64_t time_ns):
    """See the .pyi."""
    cdef Bounds bounds = bounds_of(segment)
    cdef const IndexEntry *entry
    cdef int64_t position = FRAMES_AT, found = bounds.end
    cdef Index index
    cdef Walk walk
    cdef int answer
    with nogil:
        if index_read(&index, fd, bounds.salt) == 0:
            entry = index_before(&index, time_ns)
            if entry is not NULL:
                position = entry.position
            index_free(&index)
        walk_open(&walk, fd, bounds.salt, position, bounds.position, bounds.first)
        walk.heads = True
        walk.step = HOP_BYTES
        while True:
            answer = walk_next(&walk)
            if answer <= 0:
                break
            if walk.frame.time_ns >= time_ns:
                found = walk.frame.first
                break
        walk_free(&walk)
    if answer < 0:
        raise_error(-answer)
    return found


def time_of(int fd, segment, int64_t offset, int64_t position):
    """See the .pyi."""
    cdef Bounds bounds = bounds_of(segment)
    cdef Walk walk
    cdef int answer
    with nogil:
        answer = go_to(&walk, fd, &bounds, offset, position)
        walk_free(&walk)
    if answer < 0:
        raise_error(-answer)
    return walk.frame.time_ns if answer else None


# ---------------------------------------------------------------------- records of disk queues

def queue_records(int fd, segment, int64_t offset, int64_t position, int64_t most, int64_t most_bytes):
    """See the .pyi."""
    cdef Bounds bounds = bounds_of(segment)
    cdef Span found
    cdef Text text
    cdef Walk walk
    cdef int answer
    memset(&text, 0, sizeof(text))
    found.first = found.next = bounds.end
    with nogil:
        answer = go_to(&walk, fd, &bounds, offset, position)
        if answer == 1:
            answer = -put_records(&walk, &bounds, offset, most, most_bytes, &text, &found)
        walk_free(&walk)
    try:
        if answer < 0:
            raise_error(-answer)
        return found.first, found.next, text.c_data[:text.length] if text.length else b""
    finally:
        free(text.c_data)


cdef int put_records(Walk *walk, const Bounds *bounds, int64_t offset, int64_t most, int64_t most_bytes, Text *text,
                     Span *found) noexcept nogil:
    """0 or errno."""
    cdef const char *c_record
    cdef int64_t end
    cdef Spot spot
    cdef int answer = 1
    found.first = found.next = max(offset, walk.frame.first)
    while answer == 1 and walk.frame.first <= found.next:
        memset(&spot, 0, sizeof(spot))
        end = min(bounds.end, found.first + most, walk.frame.first + walk.frame.records)
        while found.next < end and (text.length < most_bytes or found.next == found.first):
            c_record = spot_find(&spot, walk_data(walk), found.next)
            if not put_record(text, &spot, c_record, walk.frame.time_ns):
                return ENOMEM
            found.next += 1
        if found.next < walk.frame.first + walk.frame.records:
            break
        answer = walk_next(walk)
    return -answer if answer < 0 else 0


cdef bint put_record(Text *text, const Spot *spot, const char *c_record, int64_t time_ns) noexcept nogil:
    cdef int64_t size = record_length(c_record) - RECORD_SIZE, need = HEAD_BYTES + size
    cdef char *c_to
    if text.length + need > text.room:
        c_to = <char *> realloc(text.c_data, <size_t> (2 * text.room + need))
        if c_to is NULL:
            return False
        text.c_data = c_to
        text.room = 2 * text.room + need
    c_to = text.c_data + text.length
    store_i32(c_to, <int> (HEAD_BYTES - SIZE_BYTES + size))
    store_i64(c_to + RECORD_TIMESTAMP_AT, time_ns)
    store_u16(c_to + RECORD_ATTEMPTS_AT, 0)
    guid_write(guid_after(spot.frame.id, spot.index), c_to + RECORD_ID_AT)
    memcpy(c_to + HEAD_BYTES, c_record + RECORD_SIZE, <size_t> size)
    text.length += need
    return True
