"""Records of a segment, read by offset or time. For Python: see the .pyi.

Slow parts run without the GIL.
"""

import os
from collections import namedtuple

from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MIN, int64_t, uint64_t
from libc.string cimport memcpy, memset

from nsqc.store.disk.segment cimport HEAD_BYTES, RECORD_ATTEMPTS_AT, RECORD_ID_AT, RECORD_TIMESTAMP_AT
from nsqc.store.guid cimport guid_after, guid_write
from nsqc.store.log.buffer cimport Buffer, buffer_free, buffer_room
from nsqc.store.log.frame cimport RECORD_SIZE, Frame, frame_origin, record_length
from nsqc.store.log.index cimport index_position
from nsqc.store.log.jsonlines cimport line_bytes, put_line
from nsqc.store.log.read cimport Spot, spot_find
from nsqc.store.log.segmenthead cimport FRAMES_AT
from nsqc.store.log.walk cimport Walk, walk_data, walk_free, walk_next, walk_open, walk_to
from nsqc.wire.const cimport SIZE_BYTES
from nsqc.wire.hton cimport store_i32, store_i64, store_u16

Run = namedtuple("Run", "first next start end last damaged lines")

ctypedef int (*PutRecord)(Buffer *text, const char *c_frame, const Frame *frame, const char *c_record,
                          int64_t index) noexcept nogil

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
    """Walks to the first frame with an offset or a later one, as walk_to()."""
    if position == 0:
        position = FRAMES_AT if offset <= bounds.first else index_position(fd, bounds.salt, offset, 0)
    walk_open(walk, fd, bounds.salt, position, bounds.position, bounds.first, bounds.end)
    return walk_to(walk, offset, INT64_MIN)


cdef int take_run(Walk *walk, const Bounds *bounds, int64_t offset, int64_t max_messages, int64_t max_bytes,
                  bint as_lines, Span *found) noexcept nogil:
    """Takes frames from the current one on. 1 or -errno."""
    cdef int64_t left = max_bytes, end, next_
    cdef int answer = 1
    memset(found, 0, sizeof(Span))
    found.first = found.next = max(offset, walk.frame.first)
    found.damaged = found.first - offset
    found.start = found.end = found.last = walk.position
    end = found.first + min(max_messages, bounds.end - found.first)
    while answer == 1 and found.next < end:
        if found.end > found.start and (walk.frame.first != found.next
                                        or not as_lines and left < walk.frame.length):
            break       # damage, or enough
        next_ = min(walk.frame.first + walk.frame.records, end)
        if as_lines:
            next_ = measure(walk, found, next_, &left)
        else:
            left -= walk.frame.length
        found.last = walk.position
        found.end = walk.next
        found.next = next_
        if next_ < walk.frame.first + walk.frame.records or left <= 0:
            break
        answer = walk_next(walk)
    return 1 if answer >= 0 else answer


cdef int64_t measure(Walk *walk, Span *found, int64_t end, int64_t *left) noexcept nogil:
    """Adds the size of a frame's lines from found.next on; returns the offset at which the limit is reached."""
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
        found.lines += line_bytes(c_data, &spot.frame, c_record, spot.index)
        left[0] -= record_length(c_record)
        at += 1
    return at


def records(int fd, segment, int64_t offset, int64_t position, int64_t end, int64_t most_bytes, bint as_lines):
    """See the .pyi."""
    cdef Bounds bounds = bounds_of(segment)
    cdef int64_t first = bounds.end, next_ = bounds.end
    cdef Buffer text
    cdef Walk walk
    cdef int answer
    memset(&text, 0, sizeof(text))
    with nogil:
        answer = go_to(&walk, fd, &bounds, offset, position)
        if answer == 1:
            first = next_ = max(offset, walk.frame.first)
            answer = put_records(&walk, &next_, &position, min(end, bounds.end), most_bytes,
                                 put_line if as_lines else put_record, &text)
        walk_free(&walk)
    try:
        if answer < 0:
            raise_error(-answer)
        return first, next_, position, text.c_data[:text.length] if text.length else b""
    finally:
        buffer_free(&text)


cdef int put_records(Walk *walk, int64_t *offset, int64_t *position, int64_t end, int64_t most_bytes, PutRecord put,
                     Buffer *text) noexcept nogil:
    """From an offset in the current frame on, up to the first gap. 0 or -errno."""
    cdef const char *c_record
    cdef int64_t following
    cdef Spot spot
    cdef int answer = 1
    while answer == 1 and walk.frame.first <= offset[0]:
        memset(&spot, 0, sizeof(spot))
        following = walk.frame.first + walk.frame.records
        position[0] = walk.position
        while offset[0] < min(end, following) and (text.length < most_bytes or text.length == 0):
            c_record = spot_find(&spot, walk_data(walk), offset[0])
            answer = put(text, walk_data(walk), &spot.frame, c_record, spot.index)
            if answer:
                return -answer
            offset[0] += 1
        if offset[0] < following or offset[0] == end:
            return 0
        position[0] = walk.next
        answer = walk_next(walk)
    return min(answer, 0)


def origins(int fd, segment, int64_t offset, int64_t position, int64_t end):
    """See the .pyi."""
    cdef Bounds bounds = bounds_of(segment)
    cdef const char *c_origin
    cdef dict found = {}
    cdef Walk walk
    cdef int answer
    cdef int64_t at
    with nogil:
        answer = go_to(&walk, fd, &bounds, offset, position)
    try:
        while answer == 1 and walk.frame.first < end:
            at = max(offset, walk.frame.first)
            c_origin = frame_origin(walk_data(&walk), &walk.frame, at - walk.frame.first)
            while c_origin is not NULL and at < min(end, walk.frame.first + walk.frame.records):
                found[at] = c_origin[RECORD_SIZE:record_length(c_origin)]
                c_origin += record_length(c_origin)
                at += 1
            with nogil:
                answer = walk_next(&walk)
    finally:
        walk_free(&walk)
    if answer < 0:
        raise_error(-answer)
    return found


cdef int put_record(Buffer *text, const char *c_frame, const Frame *frame, const char *c_record,
                    int64_t index) noexcept nogil:
    """In the format of disk queues. 0 or ENOMEM."""
    cdef int64_t size = record_length(c_record) - RECORD_SIZE
    cdef char *c_to
    if buffer_room(text, HEAD_BYTES + size) < 0:
        return ENOMEM
    c_to = text.c_data + text.length
    store_i32(c_to, <int> (HEAD_BYTES - SIZE_BYTES + size))
    store_i64(c_to + RECORD_TIMESTAMP_AT, frame.time_ns)
    store_u16(c_to + RECORD_ATTEMPTS_AT, 0)
    guid_write(guid_after(frame.id, index), c_to + RECORD_ID_AT)
    memcpy(c_to + HEAD_BYTES, c_record + RECORD_SIZE, <size_t> size)
    text.length += HEAD_BYTES + size
    return 0


# ---------------------------------------------------------------------- times

def first_at(int fd, segment, int64_t time_ns):
    """See the .pyi."""
    cdef Bounds bounds = bounds_of(segment)
    cdef Walk walk
    cdef int answer
    with nogil:
        walk_open(&walk, fd, bounds.salt, index_position(fd, bounds.salt, -1, time_ns), bounds.position, bounds.first,
                  bounds.end)
        answer = walk_to(&walk, 0, time_ns)
        walk_free(&walk)
    if answer < 0:
        raise_error(-answer)
    return walk.frame.first if answer else bounds.end


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
